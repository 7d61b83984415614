// What a report shows, as one JSON value: docs/reference/formats.md#reports. The page reads nothing
// else, and `regen report --json` prints it.
#pragma once

#include <span>
#include <string>

#include "regen/base/json.h"
#include "regen/base/result.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"
#include "regen/report/facts.h"

namespace regen::report {

// A plan that is shown. The plan must be valid for the graph; what is wrong with its moves for the
// link of the facts is an error.
struct Shown {
  const Plan* plan = nullptr;
  Facts facts;
};

// One plan, or several of one graph beside each other.
Result<Json> document(const Graph& graph, std::span<const Shown> shown, const std::string& title);

}  // namespace regen::report
