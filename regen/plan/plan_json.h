// A plan as a JSON file:
//
//   {
//   "format": "regen-plan",
//   "version": 1,
//   "planner": "checkmate",
//   "graph": "00c0ffee00c0ffee",
//   "steps": ["c0","c3.1","o5","r5","f5"],
//   "addresses": [0,512,0]
//   }
//
// A step is one letter and an id: c computes an op (".1" picks its second variant), o offloads,
// r releases and f fetches a tensor. `graph` is Graph::fingerprint() in hexadecimal. `planner`,
// `graph` and `addresses` may be absent; `predicted` may hold anything and is not read.
#pragma once

#include <string>
#include <string_view>

#include "regen/base/json.h"
#include "regen/base/result.h"
#include "regen/plan/plan.h"

namespace regen {

// `source` names the text in messages, such as its path. Whether the steps make sense for a
// graph is the validator's business; here only their form is checked.
Result<Plan> parse_plan(std::string_view text, std::string_view source);

// Reading it back gives an equal plan. `predicted` is added if it is not empty.
std::string write_plan(const Plan& plan, const Json& predicted = Json::object());

}  // namespace regen
