#include "regen/execute/run/repeated_work.h"

#include <algorithm>

#include "regen/execute/program/operator_facts.h"
#include "regen/execute/program/program_values.h"

namespace regen::execute {
namespace {

// Storages whose memory is another in every step.
IdVector<StorageId, bool> find_changing(const InstructionList& list, const Program& program) {
  IdVector<StorageId, bool> changing(program.storages.size(), false);
  for (std::size_t s = 0; s < program.storages.size(); ++s) {
    const Role role = program.storages[StorageId(s)].role;
    changing[StorageId(s)] = role == Role::kInput || role == Role::kTangent;
  }
  for (const ComputeInstruction& call : list.computes) {
    for (const auto& external : call.external) changing[external.storage] = true;
  }
  return changing;
}

class StretchFinder {
 public:
  StretchFinder(const InstructionList& list, const Program& program, const StretchRules& rules)
      : list_(list), program_(program), rules_(rules), changing_(find_changing(list, program)) {}

  bool is_repeated(const Instruction& instruction) const {
    if (instruction.kind != InstructionKind::kCompute) return false;
    const ComputeInstruction& call = list_.computes[instruction.index];
    if (is_island(program_.nodes[call.node])) return false;
    if (call.random >= 0 || !call.external.empty() || !call.host_results.empty()) return false;
    if (!rules_.scalars && !call.scalar_arguments.empty()) return false;
    return !touches_changing(call.node);
  }

 private:
  bool touches_changing(NodeId id) const {
    const auto changes = [&](ValueId value) {
      return value.valid() && changing_[program_.values[value].storage];
    };
    return std::ranges::any_of(values_read(program_.nodes[id]), changes) ||
           std::ranges::any_of(program_.nodes[id].outputs, changes);
  }

  const InstructionList& list_;
  const Program& program_;
  const StretchRules rules_;
  const IdVector<StorageId, bool> changing_;
};

}  // namespace

std::vector<Stretch> find_stretches(const InstructionList& list, const Program& program,
                                    std::size_t first, std::size_t last,
                                    const StretchRules& rules) {
  const StretchFinder finder(list, program, rules);
  std::vector<Stretch> stretches;
  for (std::size_t i = first; i < last; ++i) {
    if (!finder.is_repeated(list.instructions[i])) continue;
    const std::size_t begin = i;
    while (i < last && finder.is_repeated(list.instructions[i])) ++i;
    if (i - begin >= rules.least_calls) stretches.push_back({begin, i});
  }
  return stretches;
}

void RepeatedWork::reset(std::vector<Stretch> stretches) {
  stretches_ = std::move(stretches);
  steps_ = 0;
}

void RepeatedWork::forget() {
  changes_ += captured() > 0;
  for (Stretch& stretch : stretches_) stretch.work.reset();
  steps_ = 0;
}

Stretch* RepeatedWork::find(std::size_t instruction) {
  const auto found = std::ranges::lower_bound(stretches_, instruction, {},
                                              [](const Stretch& s) { return s.first; });
  return found != stretches_.end() && found->first == instruction ? &*found : nullptr;
}

Bytes RepeatedWork::bytes() const {
  Bytes sum = 0;
  for (const Stretch& stretch : stretches_) sum += stretch.work ? stretch.work->bytes() : 0;
  return sum;
}

std::size_t RepeatedWork::captured() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(stretches_, [](const Stretch& s) { return s.work != nullptr; }));
}

}  // namespace regen::execute
