// Search over the decisions of the gap model (gap_model.h) and over which values move to the host:
// the cheapest step list within the budget that it comes upon, as the simulator prices it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "regen/search/local/interval_repair.h"

namespace regen {

class GapBlocks;
class GapIsland;

// For how long a search may find nothing better than what is known already.
struct Patience {
  double share = 1;  // of the effort that is left
  double known = std::numeric_limits<double>::infinity();
};

class GapSearch {
 public:
  // The problem must have a budget and outlive the search.
  GapSearch(const Problem& problem, Effort& effort)
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

  const std::optional<GapPlan>& best() const { return best_; }

 private:
  // What does not fit as it is may be given up: somebody has a plan already.
  void fit_and_add(GapState state) { fit_and_add(std::move(state), repair_, true); }
  void fit_and_add(GapState state, GapRepair& repair, bool give_up);
  void add(GapState state, GapRepair& repair);
  void add_blocks(const GapBlocks& blocks);
  void offer(const GapState& state);
  IdVector<TensorId, char> early_values(double share) const;
  void explore_all(std::vector<class GapIsland>& islands, double good_enough, const Effort& idle);

  GapSpace space_;
  Effort& effort_;
  GapRepair repair_;
  std::vector<GapState> starts_;  // where a search can begin, each of another cost
  std::optional<GapPlan> best_;
};

}  // namespace regen
