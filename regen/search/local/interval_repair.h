// Repair: decisions of the interval model (interval_model.h), and of which values move to the host,
// are changed until the plan fits the budget. Eviction drops values that are cheap to recompute
// where there are too many bytes; refilling holds dropped values where there is room.
#pragma once

#include <optional>
#include <vector>

#include "regen/base/limit.h"
#include "regen/base/random.h"
#include "regen/search/local/eviction_queue.h"
#include "regen/search/local/interval_model.h"
#include "regen/search/planner.h"

namespace regen::search {

// All that is decided. Equal decisions give equal steps.
struct IntervalDecisions {
  Holdings holdings;
  IdVector<TensorId, char> moved;
};

struct IntervalPlan {
  std::vector<Step> steps;
  double cost = 0;  // known only for a plan that fits
  Bytes peak_bytes = 0;
  bool fits = false;
  std::vector<Bytes> stage_bytes;  // the most in use while each op, or what it needs again, runs
  std::vector<std::uint32_t> returned;  // IntervalSequence::returned
};

struct IntervalState {
  IntervalDecisions decisions;
  IntervalPlan plan;
};

// What there is to decide; all workers of a search share it. The problem must have a budget and
// outlive it.
struct IntervalSpace {
  explicit IntervalSpace(const Problem& posed);

  bool can_move() const { return problem.link.can_move() && !movable.empty(); }

  const Problem& problem;
  const Graph& graph;
  IntervalModel model;
  // With more ops than this, and while many ops are over the budget, all of them are relieved in
  // one pass and not one by one.
  bool many() const { return graph.num_ops() > 1'000; }
  // With more ops than this, methods of quadratic time take too long.
  bool large() const { return graph.num_ops() > 2'500; }

  OpId turn;
  std::vector<TensorId> movable;       // in the order of making
  std::vector<double> movable_before;  // bytes of those before each, and of all
  std::vector<IntervalId> inner;       // droppable intervals of values with bytes, between two uses
  std::vector<TensorId> sources;       // values of no further use from which others are made
};

class IntervalRepair {
 public:
  // The space and the effort must outlive it.
  IntervalRepair(const IntervalSpace& space, Effort& effort)
      : space_(space), effort_(effort), mark_(space.graph.num_ops(), 0) {}

  IntervalPlan evaluate(const IntervalDecisions& decisions);
  // Drops held values where there are too many bytes until the plan fits. With `give_up` it stops
  // without success when the effort is exhausted.
  bool relieve(IntervalState& state, Random& random, bool give_up);
  // Holds dropped values where there is room.
  void refill(IntervalState& state, Random& random);
  // The width of the random factor in scores: 0 is deterministic.
  void set_blur(double blur) { blur_ = blur; }

 private:
  // One way to have fewer bytes at an op: values are dropped, perhaps after a value that they can
  // be made from is held in their place.
  struct Eviction {
    double score = 0;
    std::vector<IntervalId> dropped;
    std::optional<IntervalId> held;
  };

  void price(IntervalPlan& plan, bool moves) const;
  double cost_of_runs(const IntervalPlan& plan) const;
  // The plan is still too large and already costs so much that no repair stays within the cost cap.
  bool far_beyond_the_cap(const IntervalPlan& plan) const;
  bool at_once(const IntervalPlan& plan) const;
  bool runs_away(const IntervalPlan& plan) const;
  bool relieve_once(IntervalState& state, Random& random, bool give_up);
  bool relieve_all(IntervalState& state, Random& random);
  EvictionQueue droppable_where_over(const IntervalState& state,
                                     const std::vector<double>& excess_before, Random& random);
  double gain(IntervalId g, const std::vector<double>& excess_before) const;
  std::vector<Eviction> evictions(std::uint32_t stage, const IntervalState& state,
                                  const std::vector<double>& excess_before, Random& random);
  std::optional<Eviction> eviction_by_source(TensorId source, std::uint32_t stage,
                                             const IntervalState& state);
  std::size_t drop_across(std::uint32_t stage, IntervalState& state, std::vector<Bytes>& bytes,
                          const std::vector<double>& excess_before, Random& random);
  std::size_t make_anew_across(std::uint32_t stage, IntervalState& state);
  bool crosses(IntervalId g, std::uint32_t stage) const {
    return space_.model.interval(g).begin < stage && stage < space_.model.interval(g).end;
  }
  double price_of_dropping(IntervalId g, const Holdings& holdings);
  double rerun_price(OpId op, std::uint32_t at, const Holdings& holdings, int depth);
  double blurred(double value, Random& random) const;

  const IntervalSpace& space_;
  Effort& effort_;
  IdVector<OpId, std::uint32_t> mark_;
  std::uint32_t round_ = 0;
  double blur_ = 0.3;
};

}  // namespace regen::search
