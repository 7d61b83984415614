// The schedules of the lower-set solvers as text, one order in each line
// (docs/reference/formats.md):
//
//   compute 3            runs forward block 3 of the graph file
//   compute 12 0 2       runs backward block 12, for the gradients at places 0 and 2 of its outputs
//   forget 7 forward     frees the value of variable 7
//   forget 7 backward    frees its gradient
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::published {

enum class OrderKind : std::uint8_t { kCompute, kForgetValue, kForgetGradient };

struct ScheduleOrder {
  OrderKind kind = OrderKind::kCompute;
  std::uint32_t id = 0;                // of a block, or of a variable
  std::vector<std::uint32_t> outputs;  // kCompute of a backward block: places in its outputs

  bool operator==(const ScheduleOrder&) const = default;
};

// Orders stand in the lines of their numbers: order 0 in line 1.
using Schedule = std::vector<ScheduleOrder>;

// Whether the text begins like a schedule; a plan does not.
bool looks_like_schedule(std::string_view text);

// Checks the form only; run_schedule() checks the sense. A file that says IMPOSSIBLE, as the
// solvers do when nothing fits, is refused with that reason.
Result<Schedule> read_schedule(std::string_view text, const std::string& source);
std::string write_schedule(const Schedule& schedule);

// Of a graph that came from a lower-set file, the block of that file which each op is; none for ops
// that add up parts of a gradient. Other graphs are refused.
Result<IdVector<OpId, std::optional<std::uint32_t>>> blocks_in_file(const Graph& graph);

// A plan for a graph that came from a lower-set file, as a schedule over that file. Gradients are
// summed as they are made, so that the ops which add them up have no orders.
Result<Schedule> schedule_from_plan(const Graph& graph, const Plan& plan);

}  // namespace regen::published
