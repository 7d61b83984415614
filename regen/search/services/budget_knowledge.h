// What outcomes at several budgets of one problem say about each other: a plan at fewer bytes fits
// at more, and a bound at more bytes holds at fewer.
#pragma once

#include <span>

#include "regen/search/judge.h"

namespace regen::search {

// Outcomes of the same problem, at ascending budgets. Each one takes the cheapest plan that is
// known to fit, and the greatest bound that is known to hold for the plans that its own bound is
// about.
void share_knowledge(std::span<Outcome* const> ascending);

}  // namespace regen::search
