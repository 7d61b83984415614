// A valid plan, seen from the outside: what is where at each step, for tests that damage it.
#pragma once

#include <cstddef>
#include <vector>

#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::testing {

// The plan without its addresses, and what is on the device before each step and at the end.
// The graph must outlive it.
class Sound {
 public:
  Sound(const Graph& graph, Plan plan);

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  const std::vector<Step>& steps() const { return plan_.steps; }
  bool on_device(TensorId t, std::size_t before_step) const {
    return on_device_[before_step][t.index()];
  }
  bool all_reads_on_device(VariantId v, std::size_t before_step) const;
  bool computes(std::size_t step) const { return steps()[step].kind() == StepKind::kCompute; }
  bool reads(std::size_t step, TensorId t) const;
  bool makes(std::size_t step, TensorId t) const;
  // The first step at or after `from` that has to do with t, or the number of steps.
  std::size_t next_about(TensorId t, std::size_t from) const;
  std::size_t first_run(OpId op) const;
  std::size_t count_runs(OpId op) const;

 private:
  const Graph& graph_;
  Plan plan_;
  std::vector<std::vector<bool>> on_device_;
};

}  // namespace regen::testing
