// Search over the decisions of the interval model (gap_model.h) and over which values move to the host:
// the cheapest step list within the budget that it comes upon, as the simulator prices it.
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

// For how long a search may find nothing better than what is known already.
struct Patience {
  double share = 1;  // of the effort that is left
  double known = std::numeric_limits<double>::infinity();
};

class LocalSearch {
 public:
  // The problem must have a budget and outlive the search.
  LocalSearch(const Problem& problem, Effort& effort)
      : space_(problem), effort_(effort), repair_(space_, effort) {}

  // Starts from nothing by blocks of the forward pass (gap_blocks.h): soon, however long a graph
  // is.
  void start_in_blocks();
  // Starts from nothing: everything kept, then dropped or moved until it fits; with `give_up` only
  // while there is time.
  void start(bool give_up = false);
  // Starts from a plan of somebody else's, if it is of the kind that the model knows.
  void start_from(const Plan& plan);
  // Starts by dropping what somebody thinks should be made again, a number between 0 and 1 for each
  // op.
  void start_from_hints(const std::vector<double>& again);
  // Until the effort is exhausted, a plan is good enough, or for long nothing better was found. On
  // all cores; how many there are makes no difference to what is found with a given work.
  void improve(std::uint64_t seed, double good_enough, const Patience& patience);

  const std::optional<IntervalPlan>& best() const { return best_; }

 private:
  // What does not fit as it is may be given up: somebody has a plan already.
  void fit_and_add(IntervalState state) { fit_and_add(std::move(state), repair_, true); }
  void fit_and_add(IntervalState state, IntervalRepair& repair, bool give_up);
  void add(IntervalState state, IntervalRepair& repair);
  void add_blocks(const IntervalBlocks& blocks);
  void offer(const IntervalState& state);
  IdVector<TensorId, char> early_values(double share) const;
  void explore_all(std::vector<class SearchWorker>& workers, double good_enough,
                   const Effort& idle);

  IntervalSpace space_;
  Effort& effort_;
  IntervalRepair repair_;
  std::vector<IntervalState> starts_;  // where a search can begin, each of another cost
  std::optional<IntervalPlan> best_;
};

}  // namespace regen::search
