// Steps that give way to other jobs, and steps that end in the middle.
#include "regen/execute/executor.h"
#include "regen/execute/work_queue.h"

namespace regen {

void Executor::set_gate(std::shared_ptr<Gate> gate, double window_seconds) {
  gate_ = std::move(gate);
  window_seconds_ = window_seconds;
  for (Part& part : parts_) cut_windows_of(part);
  find_repeated();
}

// Before a window is issued, the one before last is done: so a pause has the last one to wait for,
// and the device always has work while the host prepares the next.
Status Executor::run_in_windows(const Part& part, PlacementScope& placement) {
  for (std::size_t w = 0; w < part.windows.size(); ++w) {
    Event& end = window_ends_[windows_ % window_ends_.size()];
    device_->await(end);
    if (!gate_->open()) REGEN_TRY(pause());
    const std::size_t last = w + 1 < part.windows.size() ? part.windows[w + 1] : part.last;
    run_instructions(part.windows[w], last, placement);
    end = device_->record(Queue::kCompute);
    ++windows_;
  }
  return {};
}

// With the queues empty the arena holds the whole state of the step, and nobody works on it.
Status Executor::pause() {
  const double begin = host_timing_ ? now_seconds() : 0;
  device_->synchronize();
  ++pauses_;
  REGEN_TRY(gate_->wait());
  REGEN_TRY(restore());  // whoever was asked for room meanwhile has called spill()
  if (host_timing_) host_time_.seconds -= now_seconds() - begin;
  return {};
}

// How far the updates of a step came that ended in the middle; nothing to say where it has none.
std::string Executor::updates_made() const {
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
  if (all == 0) return {};
  if (made == 0) return "; the step ended before its first update: parameters are as before it";
  return "; the step ended after " + std::to_string(made) + " of " + std::to_string(all) +
         " updates: parameters are between two steps, expected a checkpoint to be loaded";
}

}  // namespace regen
