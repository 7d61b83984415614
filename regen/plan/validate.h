// The validator accepts a plan or says, in one line, the first thing that is wrong with it.
//
// It is one of the independent readings of docs/reference/plan-semantics.md: it shares no code with
// the simulator or with any planner. Time plays no part here, so a million steps take well under a
// second (addresses add a search tree over the ranges in use).
#pragma once

#include <cstddef>
#include <optional>

#include "regen/base/result.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen {

struct ValidationLimits {
  std::optional<Bytes> budget;       // on peak_bytes, so fixed tensors count
  std::optional<Bytes> host_budget;  // on host_peak_bytes

  bool operator==(const ValidationLimits&) const = default;
};

struct Validation {
  Bytes peak_bytes = 0;
  Bytes activation_peak_bytes = 0;
  Bytes host_peak_bytes = 0;
  std::size_t peak_step = 0;  // the first step, counted from 0, that reaches the peak

  bool operator==(const Validation&) const = default;
};

// Steps are counted from 0 in messages, as ids are:
//   step 17 (compute 5 'relu2'): reads tensor 4 'conv2' (64 bytes), which is not on the device
//   (released at step 12)
// A plan whose fingerprint is 0 fits any graph; ids in the plan need not exist in the graph.
Result<Validation> validate(const Graph& graph, const Plan& plan,
                            const ValidationLimits& limits = {});

}  // namespace regen
