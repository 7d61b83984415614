// Why a plan peaks where it does, and why a budget is too small for any plan.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "regen/base/json.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen {

// How a tensor came to the device.
enum class Provenance : std::uint8_t { kFirstRun, kRecompute, kFetch };

std::string_view to_string(Provenance origin);

// A tensor that is on the device during the peak step. Uses are computes that read it and
// offloads of it, before it next leaves the device.
struct LiveTensor {
  TensorId tensor;
  Bytes bytes = 0;
  Provenance origin = Provenance::kFirstRun;
  std::size_t made_step = 0;
  std::optional<std::size_t> next_use_step;  // the peak step itself or later
  std::optional<std::size_t> last_use_step;  // may lie before the peak: then it only lingers

  bool operator==(const LiveTensor&) const = default;
};

struct Recomputed {
  OpId op;
  std::size_t times = 0;  // runs after the first
  double cost = 0;        // of those

  bool operator==(const Recomputed&) const = default;
};

struct Moved {
  TensorId tensor;
  std::size_t offloads = 0;
  std::size_t fetches = 0;
  Bytes bytes = 0;  // in both directions together

  bool operator==(const Moved&) const = default;
};

// The longest stay of a tensor: it is on the device from `made_step` until `left_step`, which
// is the number of steps if it stays to the end.
struct Kept {
  TensorId tensor;
  std::size_t made_step = 0;
  std::size_t left_step = 0;

  bool operator==(const Kept&) const = default;
};

// peak_bytes = fixed_bytes + sum of `live` + workspace_bytes + unused_bytes.
struct Explanation {
  Bytes peak_bytes = 0;
  Bytes fixed_bytes = 0;
  Bytes workspace_bytes = 0;
  Bytes unused_bytes = 0;  // gaps between addresses below the peak; 0 without addresses
  std::size_t peak_step = 0;
  std::vector<LiveTensor> live;        // largest first
  std::vector<Recomputed> recomputed;  // most expensive first
  std::vector<Moved> moved;            // most bytes first
  std::vector<Kept> kept;              // longest first

  bool operator==(const Explanation&) const = default;
};

// `plan` must be valid for `graph`; asking about another one aborts.
Explanation explain(const Graph& graph, const Plan& plan);

// A table for people; lists longer than `max_rows` are cut and say so.
std::string to_text(const Graph& graph, const Plan& plan, const Explanation& explanation,
                    std::size_t max_rows = 20);
Json to_json(const Graph& graph, const Plan& plan, const Explanation& explanation);

// Bytes that every plan needs: while an op runs, in the variant that needs least, what it reads,
// what it makes and its workspace are on the device together, and so are all outputs at the end.
struct StructuralBound {
  Bytes bytes = 0;
  OpId op;            // the op at the bound; none if it is the end of the step
  VariantId variant;  // the one that needs least
  Bytes fixed_bytes = 0;
  Bytes workspace_bytes = 0;
  std::vector<TensorId> live;  // planned, largest first; an output in the place of an
                               // overwritten input is left out, as its bytes count there

  bool operator==(const StructuralBound&) const = default;
};

StructuralBound structural_bound(const Graph& graph);

// One line that names the op and the largest tensors at the bound.
std::string to_text(const Graph& graph, const StructuralBound& bound);
Json to_json(const Graph& graph, const StructuralBound& bound);

// What is known about a budget without searching. When `proven`, no plan fits, and `message`
// (one line) says why; otherwise the bound does not rule the budget out.
struct Infeasibility {
  bool proven = false;
  Bytes budget = 0;
  StructuralBound bound;
  std::string message;

  bool operator==(const Infeasibility&) const = default;
};

Infeasibility explain_infeasible(const Graph& graph, Bytes budget);

}  // namespace regen
