// How the price of memory looks, for people and for programs.
#pragma once

#include <string>

#include "regen/base/json.h"
#include "regen/plan/plan.h"
#include "regen/search/bounds/shadow_prices.h"

namespace regen::cli {

// A price, and the plan that it is held against, if there is one.
struct PricedPlan {
  const Graph& graph;
  const search::ShadowPrice& price;
  const Plan* plan = nullptr;
  double cost = 0;  // of the plan
};

// At most `max_rows` of the ops where memory binds, and as many tensors: for people at the most
// expensive of these ops, for programs at each.
std::string price_text(const PricedPlan& priced, std::size_t max_rows);
Json price_json(const PricedPlan& priced, std::size_t max_rows);

}  // namespace regen::cli
