// What a schedule of the lower-set solvers does: checked order by order, and its peak and overhead
// counted as those solvers count, in 64 bits.
#pragma once

#include <cstddef>
#include <string>

#include "regen/published/lower_sets/format/format_lower_sets.h"
#include "regen/published/lower_sets/format/schedule_text.h"

namespace regen::published {

struct ScheduleRun {
  // Values that blocks made and gradients, after any order; parameters and network inputs are left
  // out, their gradients are counted.
  Bytes peak_bytes = 0;
  std::size_t peak_line = 0;
  // The same without the gradients of parameters and network inputs: what the solvers' budgets
  // mean.
  Bytes activation_peak_bytes = 0;
  double base_cost = 0;      // every forward block once
  double overhead_cost = 0;  // of forward blocks run again
  std::size_t recomputed = 0;

  bool operator==(const ScheduleRun&) const = default;
};

// Refuses an order whose inputs are not there, whose gradient is not yet whole, that makes the same
// part of a gradient twice or frees what is not there; a schedule that leaves a forward block or
// the gradient of a parameter out. Errors name the line.
Result<ScheduleRun> run_schedule(const LowerSetFile& file, const Schedule& schedule,
                                 const std::string& source);

}  // namespace regen::published
