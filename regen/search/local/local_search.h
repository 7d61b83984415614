// Local search over the decisions of the interval model (interval_model.h). It finds the cheapest
// step list within the budget, as the simulator prices it. `auto` searches with it, and the exact
// planners find and improve their incumbents with it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "regen/search/local/interval_repair.h"

namespace regen::search {

class IntervalBlocks;
class SearchWorker;

// How long a search may go on without a plan that is better than the known one.
struct Patience {
  double fraction = 1;  // of the effort that is left
  double known = std::numeric_limits<double>::infinity();
  Limits most = {};  // of the whole search, whatever it finds: seconds and work count
};

// Whether the problem brings a plan for this graph, with first runs in its order.
bool starts_from_plan(const Problem& problem);

// A plan of the quick starts alone.
struct QuickPlan {
  Bytes bound = 0;  // what every plan takes
  std::optional<IntervalPlan> plan;

  double cost() const { return plan ? plan->cost : std::numeric_limits<double>::infinity(); }
};

// For another graph than the problem's, such as one in another order or with other variants.
// `give_up` as in LocalSearch::start(). The problem must have a budget.
QuickPlan quick_plan(const Problem& problem, const Graph& graph, Effort& effort,
                     bool give_up = false);

class LocalSearch {
 public:
  // The problem must have a budget and outlive the search.
  LocalSearch(const Problem& problem, Effort& effort)
      : space_(problem), effort_(effort), repair_(space_, effort) {}

  // Starts from blocks of the forward pass (interval_blocks.h), in time linear in the graph.
  void start_in_blocks();
  // Starts from keeping everything, and evicts until the plan fits; with `give_up` only while there
  // is effort left.
  void start(bool give_up = false);
  // Starts from a plan of another planner, if the model can express it, or from decisions.
  void start_from(const Plan& plan);
  void start_from(Decisions decisions) { fit_and_add({std::move(decisions), {}}); }
  // Starts from decisions, with everything free to move that they hold between two uses.
  void start_moving(Decisions decisions);
  // Starts from keeping everything, with an exact repair; with many ops by lowering the budget, so
  // that only what estimates leave is repaired exactly. Nothing on large graphs that have a plan.
  void start_exactly(std::uint64_t seed);
  // For budgets to which no start can be repaired in one go: lowers the budget in small steps, each
  // from the decisions that kept the one before.
  void start_by_lowering(std::uint64_t seed);
  // Starts by dropping the values that a bound recomputes: a number between 0 and 1 for each op.
  void start_from_hints(const std::vector<double>& again);
  // Searches until the effort is exhausted, a plan costs at most `good_enough`, or `patience` ends. A
  // further search continues from the plans of this one, with other random numbers.
  // Uses all cores; their number does not change what is found with a given amount of work.
  void improve(std::uint64_t seed, double good_enough, const Patience& patience);

  const IntervalModel& model() const { return space_.model; }
  const std::optional<IntervalPlan>& best() const { return best_; }
  // Needs a best one.
  Plan best_plan() const { return {.steps = steps_of(space_.graph, *best_)}; }

 private:
  // Repair may give up: another start has given a plan already.
  void fit_and_add(IntervalState state) { fit_and_add(std::move(state), repair_, true); }
  void fit_and_add(IntervalState state, IntervalRepair& repair, bool give_up);
  void add(IntervalState state, IntervalRepair& repair);
  void add_start(IntervalState state);
  std::size_t good_starts() const;
  bool beats_best(const IntervalPlan& plan) const;
  bool relieve_best(IntervalState& state, IntervalRepair& repair, Random& random,
                    bool exactly) const;
  void lower(std::uint64_t seed, double effort_fraction);
  void add_blocks(const IntervalBlocks& blocks);
  void add_blocks(const IntervalBlocks& blocks, double cheapest, double away);
  void offer(const IntervalState& state);
  Decisions move_early(double forward_fraction) const;
  void explore_all(std::vector<SearchWorker>& workers, double good_enough, std::int64_t most_work,
                   double most_seconds);

  IntervalSpace space_;
  Effort& effort_;
  IntervalRepair repair_;
  std::vector<IntervalState> starts_;  // of different costs
  std::uint64_t searches_ = 0;         // so far
  std::optional<IntervalPlan> best_;
};

}  // namespace regen::search
