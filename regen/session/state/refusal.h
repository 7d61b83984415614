// The other end of planning: no plan was found, and why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regen/plan/explain.h"
#include "regen/session/state/recorded_step.h"

namespace regen::session {

struct Refusal {
  Infeasibility why;                  // the budget and the bound that every plan has
  std::string op;                     // at the bound; empty: it is the end of the step
  std::vector<std::string> tensors;   // live there, the largest first
  bool proven = false;                // no plan exists; else none was found
  std::string planner;                // the one that gave up; empty: not said
  Bytes caller_bytes = 0;             // what the caller holds beside the plan
  std::optional<Bytes> least_budget;  // the smallest that is known to work, without those

  bool operator==(const Refusal&) const = default;
};

// One line: why the budget is too small, and the least one that is known to work.
std::string to_text(const Refusal& refusal);
// Infeasible where proven, else a limit.
Error to_error(const Refusal& refusal);

}  // namespace regen::session
