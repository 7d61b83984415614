#include "regen/session/state/refusal.h"

namespace regen::session {

std::string to_text(const Refusal& refusal) {
  std::string text = refusal.why.message;
  if (!refusal.why.proven) {
    const std::string by = refusal.planner.empty() ? "" : " (" + refusal.planner + ")";
    text = "no plan was found" + by + ": " + text;
  }
  if (refusal.least_budget) {
    text +=
        "; the least budget found to work is " + format_grouped(*refusal.least_budget) + " bytes";
  } else {
    text += "; expected a larger budget, or a smaller batch";
  }
  if (refusal.caller_bytes > 0) {
    text += "; to all of these add " + format_grouped(refusal.caller_bytes) +
            " bytes that the caller holds (loss, optimizer, buckets)";
    if (refusal.least_budget) {
      text += ": a budget of " + format_grouped(*refusal.least_budget + refusal.caller_bytes) +
              " bytes or more";
    }
  }
  return text;
}

Error to_error(const Refusal& refusal) {
  return refusal.proven ? infeasible(to_text(refusal)) : limit_reached(to_text(refusal));
}

}  // namespace regen::session
