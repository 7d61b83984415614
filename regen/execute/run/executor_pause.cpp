// Steps that give way to other jobs, and steps that end in the middle.
#include <numeric>
#include <span>

#include "regen/execute/device/cpu/work_queue.h"
#include "regen/execute/device/quietly.h"
#include "regen/execute/run/executor.h"

namespace regen::execute {

void Executor::set_gate(std::shared_ptr<Gate> gate, double quantum_seconds) {
  gate_ = std::move(gate);
  quantum_seconds_ = quantum_seconds;
  issued_ = IssuedWork(quantum_seconds);
  quantum_ends_.clear();
  for (Part& part : parts_) cut_quanta_of(part);
  find_repeated();
}

Status Executor::run_in_quanta(const Part& part, PlacementScope& placement) {
  for (std::size_t w = 0; w < part.quanta.size(); ++w) {
    const std::size_t first = part.quanta[w];
    const std::size_t last = w + 1 < part.quanta.size() ? part.quanta[w + 1] : part.last;
    const auto all = std::span(seconds_).subspan(first, last - first);
    const double seconds = std::accumulate(all.begin(), all.end(), 0.0);
    if (!await_room_for(seconds, gate_.get()) || !gate_->open()) {
      REGEN_TRY(pause());
      await_room_for(seconds,
                     nullptr);  // it has its turn: this quantum is run, whatever is requested now
    }
    run_instructions(first, last, placement);
    quantum_ends_.push_back(device_->record(Queue::kCompute));  // may fail: then nothing is noted
    issued_.issue(seconds, now_seconds());
  }
  return {};
}

bool Executor::await_room_for(double seconds, const Gate* gate) {
  const double times = gate_->hurried() ? 1 : kUnhurried;
  for (std::size_t left = issued_.in_the_way_of(seconds, times); left > 0; --left) {
    const double expected = issued_.expected_end() - now_seconds();
    if (!device_->await(quantum_ends_.front(), expected, gate)) return false;
    quantum_ends_.pop_front();
    issued_.finish_oldest();
  }
  return true;
}

// What is on the device ends beside the work of the next job: to wait for it first would leave the
// device without work until that job has received its turn. spill(), which takes the memory away
// meanwhile, waits for it.
Status Executor::pause() {
  const double begin = host_timing_ ? now_seconds() : 0;
  ++pauses_;
  if (Status status = gate_->wait(); !status.ok()) {
    // The caller finds what the step has left, and the first error.
    quietly(Lost::kDrop, [&] { device_->synchronize(); });
    return status;
  }
  REGEN_TRY(restore());
  if (host_timing_) host_time_.seconds -= now_seconds() - begin;
  return {};
}

// How far the updates of a step came that ended in the middle; nothing to say where it has none.
// (made so far in this step, of all).
std::pair<std::size_t, std::size_t> Executor::count_updates() const {
  const Graph& graph = step_->graph;
  IdVector<NodeId, bool> updates(recording_->program.nodes.size(), false);
  for (const OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::kUpdate && !graph.mutates(op).empty() &&
        step_->nodes[op].valid()) {
      updates[step_->nodes[op]] = true;
    }
  }
  std::size_t made = 0;
  std::size_t all = 0;
  for (std::size_t i = 0; i < list_.instructions.size(); ++i) {
    const Instruction& instruction = list_.instructions[i];
    if (instruction.kind != InstructionKind::kCompute) continue;
    if (!updates[list_.computes[instruction.index].node]) continue;
    ++all;
    made += i < position_;
  }
  return {made, all};
}

std::string Executor::updates_made() const {
  const auto [made, all] = count_updates();
  if (all == 0) return {};
  if (made == 0) return "; the step ended before its first update: parameters are as before it";
  return "; the step ended after " + std::to_string(made) + " of " + std::to_string(all) +
         " updates: parameters are between two steps, expected a checkpoint to be loaded";
}

}  // namespace regen::execute
