// What every planner is: a function from a problem to a proposal. The judge, not the planner,
// says what a proposal costs, and the validator whether it may be used.
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regen/base/limit.h"
#include "regen/base/result.h"
#include "regen/cost/device.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"
#include "regen/simulate/simulate.h"

namespace regen::search {

class Accounting;    // build/accounting.h
class Registry;      // registry.h
class Ablation;      // portfolio/table.h
struct SearchTrace;  // search_trace.h

struct PlannerOptions {
  // Decides what checkpoints keep and in which order candidates are tried; null: plain.
  const Accounting* accounting = nullptr;
  int greedy_points = 60;           // chen_greedy: how many segment sizes are tried, 1..100000
  std::uint64_t seed = 0;           // for planners that draw random numbers
  double gap = 0;                   // exact planners: stop when the gap is this small
  bool recompute_gradients = true;  // checkmate: may ops after the forward pass run again?
  bool keep_order = false;          // auto: first runs only in the order of the graph
  // Options of planners that are not of this folder, in a type of their own (published/options.h).
  std::any extra;
};

// Called whenever a search improves: with the best cost so far, if any, and a proven bound.
using SearchObserver =
    std::function<void(double seconds, std::optional<double> incumbent, double lower_bound)>;

// A planning problem. The graph must outlive it.
struct Problem {
  const Graph* graph = nullptr;
  Link link;
  // Device bytes, fixed ones included. Absent: no limit; heuristics that search then look for the
  // least memory, exact planners keep everything.
  std::optional<Bytes> budget;
  std::optional<Bytes> host_budget;
  // The most a plan may cost; absent: no limit.
  std::optional<double> cost_cap;
  PlannerOptions options;
  SearchObserver observer;  // may be empty
  // Planners that `auto` may run beside those of search/; null: none. Must outlive the search.
  const Registry* registry = nullptr;
  const Ablation* ablation = nullptr;  // what `auto` goes without; null: nothing
  SearchTrace* trace = nullptr;        // filled by `auto`; null: not asked for
  // A plan for this graph to start from, if any. It may exceed the limits. Must outlive the search.
  const Plan* start = nullptr;
};

enum class PlanStatus : std::uint8_t {
  kOptimal,     // proven: no plan of the planner's class is cheaper
  kFeasible,    // a plan within the limits
  kInfeasible,  // proven: no plan of the planner's class is within the limits
  kUnknown,     // none found, none excluded
};

std::string_view to_string(PlanStatus status);

// What a planner counts in its own model, beside what the judge counts: name and value.
using Figures = std::vector<std::pair<std::string, double>>;

// Which plans a lower bound is about.
enum class BoundKind : std::uint8_t {
  kEveryPlan,  // all that are valid
  kOrder,      // those whose first runs follow the order of the graph
  // Of these, Checkmate's: nothing moves, and between two first runs no op runs twice. Where memory
  // is very short, running one twice there can be cheaper, so that this says less.
  kStages,
};

std::string_view to_string(BoundKind kind);

// What a planner returns. `status` is its own claim; a proposal over the budget is allowed and
// comes out of solve() as kUnknown, with the plan for people to look at.
struct Proposal {
  PlanStatus status = PlanStatus::kFeasible;
  std::optional<Plan> plan;
  double lower_bound = 0;  // proven; in the graph's unit
  BoundKind bound_kind = BoundKind::kStages;
  std::string note;  // what was chosen, or why there is no plan, for people
  Figures figures = {};
};

using PlanFunction = std::function<Result<Proposal>(const Problem&, Effort&)>;

// One planner of a registry.
struct Planner {
  std::string_view name;
  std::string_view summary;  // one line for people
  PlanFunction plan;
  // What it calls infeasible is proven for its whole class. (In the artifact's batch-size test
  // fixed bytes count twice for the heuristics and once for the integer program.)
  bool integer_program = false;
};

}  // namespace regen::search
