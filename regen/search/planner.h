// What every planner is: a function from a problem to a proposal. The judge, not the planner,
// says what a proposal costs, and the validator whether it may be used.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regen/base/limit.h"
#include "regen/base/result.h"
#include "regen/cost/device.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"
#include "regen/published/monet/monet_mode.h"
#include "regen/simulate/simulate.h"

namespace regen {

// Whose rules decide what is released when, and in which order candidates are tried.
enum class Accounting : std::uint8_t {
  kPlain,      // everything counted once, every tensor released at its last use, sorted orders
  kCheckmate,  // as the published artifact does it (docs/planners.md)
};

std::string_view to_string(Accounting accounting);

// Which schedules the integer program may choose from: each op runs for the first time in a stage
// of its own (the published one), or the stages only have to run every op, or only the last one.
enum class ImposedSchedule : std::uint8_t { kFrontier, kCoverAll, kCoverLast };

// How a fractional schedule becomes a whole one.
enum class Rounding : std::uint8_t { kSweep, kHalf, kRandomThreshold, kRandomised };

// Of all strategies within the budget, lower sets can take the fastest, or the one that caches
// least and so peaks lowest once values are released at their last use.
enum class Preference : std::uint8_t { kTime, kMemory };

// How memory, time and overhead are counted while planning: as the judge does, or by the formulas
// of the paper (lower sets, str).
enum class PlanningModel : std::uint8_t { kLiveness, kPublished };

// The names in the command line of the values of each of these, in their order.
template <class Choice>
std::span<const std::string_view> choice_names();
template <>
std::span<const std::string_view> choice_names<Accounting>();
template <>
std::span<const std::string_view> choice_names<ImposedSchedule>();
template <>
std::span<const std::string_view> choice_names<Rounding>();
template <>
std::span<const std::string_view> choice_names<Preference>();
template <>
std::span<const std::string_view> choice_names<PlanningModel>();

struct PlannerOptions {
  Accounting accounting = Accounting::kPlain;
  int greedy_points = 60;             // chen_greedy: how many segment sizes are tried, 1..100000
  std::optional<std::int64_t> slots;  // griewank: this many checkpoints; absent: tries all
  std::uint64_t seed = 0;             // for planners that draw random numbers
  double gap = 0;                     // exact planners: stop when the gap is this small
  bool recompute_gradients = true;    // checkmate: may ops after the forward pass run again?
  bool keep_order = false;            // auto: first runs only in the order of the graph
  ImposedSchedule schedule = ImposedSchedule::kFrontier;  // checkmate
  Rounding rounding = Rounding::kSweep;                   // checkmate_lp
  int samples = 100;                                      // checkmate_lp: random draws
  Preference prefer = Preference::kTime;                  // lower sets
  PlanningModel model = PlanningModel::kLiveness;
  MonetMode monet_mode;  // monet
};

// Told whenever a search knows more: the best cost so far, if any, and a proven bound.
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
  // A plan for this graph to start from, if any: near what is looked for, though perhaps not within
  // the limits. Must outlive the search.
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

// A proposal that went through simulator and validator.
struct Outcome {
  std::string planner;
  PlanStatus status = PlanStatus::kUnknown;
  std::optional<Plan> plan;
  Simulation simulation;  // of `plan`, if there is one
  double base_cost = 0;
  double lower_bound = 0;  // at least the trivial one: every op once, each in its cheapest way
  BoundKind bound_kind = BoundKind::kEveryPlan;
  double gap = 0;  // (cost - lower_bound) / cost, 0 without a plan
  double seconds = 0;
  std::int64_t work = 0;
  std::string note;
  Figures figures;
};

// Runs a planner of the registry on a problem and judges what it proposes. Bad input (an unknown
// planner, a graph the planner cannot take) is an error; infeasible and unknown are outcomes.
Result<Outcome> solve(std::string_view planner, const Problem& problem, const Limits& limits = {});

// True when the simulated plan keeps the problem's budget, host budget and cost cap.
bool within_limits(const Problem& problem, const Simulation& simulation);

}  // namespace regen
