// The trade-off of one step between memory and time: a few plans, from the least memory to keeping
// everything.
//
//   seconds |*
//           |  *
//           |     *  .  *              a plan that takes more bytes than another and is no quicker
//           |_____________*___ bytes   (.) is not kept
//
// When the byte limit of a job changes, the plan for the new limit is found here without a search.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "regen/search/services/addressed_plan.h"

namespace regen::search {

struct PlanCurveOptions {
  std::size_t points = 8;  // budgets that are tried, evenly from keeping everything to the bound
  int last_steps = 3;      // bisections between the least that has a plan and the bound
};

class PlanCurve {
 public:
  // Within the problem's budget, if it has one. The work limit applies to each plan, the seconds to
  // the whole, which uses all cores. A budget for which no plan is found has no point.
  static Result<PlanCurve> make(std::span<const Planner* const> planners, const Problem& problem,
                                const AddressOptions& addresses, const Limits& limits,
                                const PlanCurveOptions& options = {});

  // A plan from another search; not kept if another plan takes no more bytes and is as fast.
  void add(Outcome outcome);
  // Ascending in bytes (the simulated peak), descending in cost.
  const std::vector<Outcome>& plans() const { return plans_; }
  // The fastest plan that takes at most `bytes`, or null.
  const Outcome* within(Bytes bytes) const;

 private:
  std::vector<Outcome> plans_;
};

}  // namespace regen::search
