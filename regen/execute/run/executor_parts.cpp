// The parts of a step: where the caller takes over, and the quanta inside.
#include <algorithm>
#include <set>

#include "regen/execute/program/program_values.h"
#include "regen/execute/run/executor.h"

namespace regen::execute {

// The last instruction that makes the result's storage; 0 if no node makes it. One that is lent may have been
// moved away in between, and is there for good at the end.
std::size_t Executor::completed_at(std::size_t result) const {
  const Program& program = recording_->program;
  const StorageId storage = program.values[program.results[result].value].storage;
  std::size_t last = 0;
  for (std::size_t i = 0; i < list_.instructions.size(); ++i) {
    if (list_.instructions[i].kind == InstructionKind::kCopy && is_lent(result)) {
      const Step& step = plan_.steps[list_.instructions[i].step];
      if (step_->storages[step.tensor()] == storage) return list_.instructions.size() - 1;
    }
    if (list_.instructions[i].kind != InstructionKind::kCompute) continue;
    const Node& node = program.nodes[list_.computes[list_.instructions[i].index].node];
    for (const ValueId output : node.outputs) {
      if (output.valid() && program.values[output].storage == storage) last = i;
    }
  }
  return last;
}

std::vector<StorageId> Executor::storages_read_from(std::size_t part) const {
  const Program& program = recording_->program;
  std::set<StorageId> found;
  for (std::size_t i = parts_[part].first; i < list_.instructions.size(); ++i) {
    if (list_.instructions[i].kind != InstructionKind::kCompute) continue;
    const Node& node = program.nodes[list_.computes[list_.instructions[i].index].node];
    for (const ValueId value : values_read(node)) {
      const StorageId storage = program.values[value].storage;
      if (program.storages[storage].role != Role::kComputed) found.insert(storage);
    }
  }
  return {found.begin(), found.end()};
}

void Executor::cut_backward(Bytes bytes) {
  const Program& program = recording_->program;
  std::vector<std::size_t> cuts;
  if (boundary_ < list_.instructions.size()) cuts.push_back(boundary_ + 1);
  std::vector<std::pair<std::size_t, Bytes>> gradients;
  for (std::size_t r = 0; r < maker_.size(); ++r) {
    const ProgramResult& result = program.results[r];
    if (result.kind != ResultKind::kGradient || maker_[r] <= boundary_) continue;
    gradients.emplace_back(maker_[r], program.storages[program.values[result.value].storage].bytes);
  }
  std::sort(gradients.begin(), gradients.end());
  Bytes complete = 0;
  for (const auto& [instruction, size] : gradients) {
    complete += size;
    // What follows the last gradient belongs to its part.
    if (complete < bytes || instruction == gradients.back().first) continue;
    cuts.push_back(instruction + 1);
    complete = 0;
  }
  make_parts(cuts);
}

void Executor::make_parts(const std::vector<std::size_t>& cuts) {
  parts_.clear();
  std::size_t first = 0;
  for (const std::size_t cut : cuts) {
    if (cut <= first || cut >= list_.instructions.size()) continue;
    parts_.push_back({first, cut, {}});
    first = cut;
  }
  parts_.push_back({first, list_.instructions.size(), {}});
  for (std::size_t r = 0; r < maker_.size(); ++r) {
    const auto home = std::find_if(parts_.begin(), parts_.end(),
                                   [&](const Part& part) { return maker_[r] < part.last; });
    (home == parts_.end() ? parts_.back() : *home).results.push_back(r);
  }
  for (Part& part : parts_) cut_quanta_of(part);
  next_part_ = position_ = 0;
  find_repeated();
}

void Executor::cut_quanta_of(Part& part) const {
  part.quanta.clear();
  if (!gate_) return;
  const auto seconds = std::span(seconds_).subspan(part.first, part.last - part.first);
  for (const std::size_t start : cut_quanta(seconds, quantum_seconds_ / kNeighbourhoodParts)) {
    part.quanta.push_back(part.first + start);
  }
}

}  // namespace regen::execute
