// What memory buys one step, as plans: a few of them, from the least memory to keeping everything.
//
//   seconds |*
//           |  *
//           |     *  .  *              a plan that takes more bytes than another and is no quicker
//           |_____________*___ bytes   (.) is not kept
//
// Whoever must live with fewer bytes, or may use more, finds the plan for that here without a
// search.
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
  // Within the problem's budget, if it has one. Of the limits, the work is for each plan and the
  // seconds are for the whole, which takes all cores. A budget for which nothing is found has no
  // point: there may be none.
  static Result<PlanCurve> make(std::span<const Planner* const> planners, const Problem& problem,
                                const AddressOptions& addresses, const Limits& limits,
                                const PlanCurveOptions& options = {});

  // A plan that somebody else found; not kept if another takes no more bytes and is as quick.
  void add(Outcome outcome);
  // Ascending in bytes (the simulated peak), descending in cost.
  const std::vector<Outcome>& plans() const { return plans_; }
  // The quickest that takes at most so many bytes, or null.
  const Outcome* within(Bytes bytes) const;

 private:
  std::vector<Outcome> plans_;
};

}  // namespace regen::search
