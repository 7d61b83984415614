#include "tests/support/plans/sound.h"

#include <algorithm>
#include <utility>

namespace regen::testing {

Sound::Sound(const Graph& graph, Plan plan) : graph_(graph), plan_(std::move(plan)) {
  plan_.addresses.reset();
  std::vector<bool> now(graph.num_tensors(), false);
  for (const Step& step : plan_.steps) {
    on_device_.push_back(now);
    if (step.kind() == StepKind::kRelease) now[step.tensor().index()] = false;
    if (step.kind() == StepKind::kFetch) now[step.tensor().index()] = true;
    if (step.kind() != StepKind::kCompute) continue;
    const VariantId v = step.variant(graph);
    for (TensorId t : graph.makes(v)) now[t.index()] = true;
    if (graph.overwrites(v).valid()) now[graph.overwrites(v).index()] = false;
  }
  on_device_.push_back(now);
}

bool Sound::all_reads_on_device(VariantId v, std::size_t before_step) const {
  const auto list = graph_.reads(v);
  return std::all_of(list.begin(), list.end(),
                     [&](TensorId t) { return graph_.fixed(t) || on_device(t, before_step); });
}

bool Sound::reads(std::size_t step, TensorId t) const {
  if (!computes(step)) return false;
  const auto list = graph_.reads(steps()[step].variant(graph_));
  return std::find(list.begin(), list.end(), t) != list.end();
}

bool Sound::makes(std::size_t step, TensorId t) const {
  if (!computes(step)) return false;
  const auto list = graph_.makes(steps()[step].variant(graph_));
  return std::find(list.begin(), list.end(), t) != list.end();
}

std::size_t Sound::next_about(TensorId t, std::size_t from) const {
  while (from < steps().size()) {
    if (computes(from) ? reads(from, t) || makes(from, t) : steps()[from].tensor() == t) break;
    ++from;
  }
  return from;
}

std::size_t Sound::first_run(OpId op) const {
  std::size_t step = 0;
  while (!computes(step) || steps()[step].op() != op) ++step;
  return step;
}

std::size_t Sound::count_runs(OpId op) const {
  return static_cast<std::size_t>(std::count_if(steps().begin(), steps().end(), [&](Step step) {
    return step.kind() == StepKind::kCompute && step.op() == op;
  }));
}

}  // namespace regen::testing
