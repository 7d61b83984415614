#include "regen/execute/run/quanta.h"

#include <algorithm>

namespace regen::execute {

std::vector<std::size_t> cut_quanta(std::span<const double> seconds, double bound) {
  std::vector<std::size_t> starts;
  double length = 0;
  bool timed = false;  // the quantum has something that takes time
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const bool full = timed && seconds[i] > 0 && length + seconds[i] > bound;
    if (i == 0 || full) {
      starts.push_back(i);
      length = 0;
      timed = false;
    }
    length += seconds[i];
    timed |= seconds[i] > 0;
  }
  return starts;
}

std::size_t IssuedWork::in_the_way_of(double seconds, double times) const {
  double together = seconds;
  for (const Quantum& quantum : quanta_) together += quantum.seconds;
  std::size_t done = 0;
  while (!may_be_together(together, quanta_.size() - done + 1, times * bound_)) {
    together -= quanta_[done++].seconds;
  }
  return done;
}

void IssuedWork::issue(double seconds, double now) {
  const double begin = quanta_.empty() ? now : std::max(now, quanta_.back().end);
  quanta_.push_back({.seconds = seconds, .end = begin + seconds});
}

std::vector<double> predicted_seconds(const InstructionList& list, const Graph& graph,
                                      const Plan& plan) {
  std::vector<double> seconds;
  seconds.reserve(list.instructions.size());
  for (const Instruction& instruction : list.instructions) {
    if (instruction.kind != InstructionKind::kCompute) {
      seconds.push_back(0);
      continue;
    }
    const VariantId variant = plan.steps[instruction.step].variant(graph);
    const bool again = list.computes[instruction.index].rerun;
    seconds.push_back(again ? graph.rerun_cost(variant) : graph.cost(variant));
  }
  return seconds;
}

}  // namespace regen::execute
