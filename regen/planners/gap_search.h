// Search over the decisions of the gap model (gap_model.h) and over which values move to the host:
// the cheapest step list within the budget that it comes upon, as the simulator prices it.
#pragma once

#include <optional>
#include <vector>

#include "regen/base/limit.h"
#include "regen/base/random.h"
#include "regen/planners/gap_model.h"
#include "regen/planners/planner.h"

namespace regen {

// All that is decided. Equal decisions give equal steps.
struct GapDecisions {
  Holdings holdings;
  IdVector<TensorId, char> moved;
};

struct GapPlan {
  std::vector<Step> steps;
  double cost = 0;  // known only for a plan that fits
  Bytes peak_bytes = 0;
  bool fits = false;
  std::vector<Bytes> stage_bytes;  // the most in use while each op, or what it needs again, runs
  std::vector<std::uint32_t> returned;  // GapSequence::returned
};

class GapSearch {
 public:
  // The problem must have a budget and outlive the search.
  GapSearch(const Problem& problem, Effort& effort);

  // Starts from nothing: everything kept, then dropped or moved until it fits.
  void start();
  // Starts from a plan of somebody else's, if it is of the kind that the model knows.
  void start_from(const Plan& plan);
  // Starts by dropping what somebody thinks should be made again, a number between 0 and 1 for each
  // op.
  void start_from_hints(const std::vector<double>& again);
  // Until the effort is exhausted, a plan is good enough, or for long nothing better was found.
  void improve(std::uint64_t seed, double good_enough);

  const std::optional<GapPlan>& best() const { return best_; }

 private:
  struct State {
    GapDecisions decisions;
    GapPlan plan;
  };

  GapPlan evaluate(const GapDecisions& decisions);
  void price(GapPlan& plan, bool moves) const;
  double cost_of_runs(const GapPlan& plan) const;
  // So dear already that no plan within the cap will come of it, though it is still too large.
  bool far_beyond_the_cap(const GapPlan& plan) const;
  void offer(const State& state);
  // Remembers where a search can start.
  void add_island(State state);
  struct Island {
    State current;
    State best;
    int since_best = 0;
  };
  void explore(Island& island, int tries, double good_enough, Random& random);

  // Drops held values where there are too many bytes until the plan fits.
  bool relieve(State& state, Random& random);
  bool relieve_once(State& state, Random& random);
  // One way to have fewer bytes at some op: values are dropped there, perhaps after one that they
  // can be made from is held in their place.
  struct Relief {
    double score = 0;
    std::vector<GapId> dropped;
    std::optional<GapId> held;
  };
  std::vector<Relief> reliefs(std::uint32_t stage, const State& state,
                              const std::vector<double>& excess_before, Random& random);
  std::optional<Relief> relief_by_source(TensorId source, std::uint32_t stage, const State& state);
  std::size_t drop_across(std::uint32_t stage, State& state, std::vector<Bytes>& bytes,
                          const std::vector<double>& excess_before, Random& random);
  bool crosses(GapId g, std::uint32_t stage) const {
    return model_.gap(g).begin < stage && stage < model_.gap(g).end;
  }
  std::size_t make_anew_across(std::uint32_t stage, State& state);
  // Holds dropped values where there is room.
  void refill(State& state, Random& random);
  double price_of_dropping(GapId g, const Holdings& holdings);
  double rerun_price(OpId op, std::uint32_t at, const Holdings& holdings, int depth);

  double blurred(double value, Random& random) const;
  void perturb(State& state, Random& random);
  void hold_some(State& state, Random& random);
  void change_movement(State& state, Random& random);
  IdVector<TensorId, char> early_values(Bytes bytes) const;
  double forward_cost() const;

  const Problem& problem_;
  const Graph& graph_;
  Effort& effort_;
  GapModel model_;
  OpId turn_;
  std::vector<TensorId> movable_;  // in the order of making
  std::vector<GapId> inner_;       // droppable gaps of values with bytes, between two uses
  std::vector<TensorId> sources_;  // values of no further use from which others are made
  IdVector<OpId, std::uint32_t> mark_;
  std::uint32_t round_ = 0;
  double blur_ = 0.3;  // how much chance there is in a choice
  std::vector<Island> islands_;
  std::optional<GapPlan> best_;
};

}  // namespace regen
