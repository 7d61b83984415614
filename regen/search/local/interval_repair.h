// Repair: decisions of the interval model (interval_model.h) are changed until the plan fits the
// budget. Eviction drops values that are cheap to recompute where there are too many bytes;
// refilling holds dropped values where there is room.
#pragma once

#include <optional>
#include <vector>

#include "regen/base/limit.h"
#include "regen/base/random.h"
#include "regen/search/local/eviction_queue.h"
#include "regen/search/local/interval_evaluator.h"

namespace regen::search {

class IntervalRepair {
 public:
  // The space and the effort must outlive it.
  IntervalRepair(const IntervalSpace& space, Effort& effort)
      : space_(space),
        effort_(effort),
        budget_(*space.problem.budget),
        mark_(space.graph.num_ops(), 0) {}

  IntervalPlan evaluate(const Decisions& decisions);
  // Drops held values where there are too many bytes until the plan fits. With `give_up` it stops
  // without success when the effort is exhausted.
  bool relieve(IntervalState& state, Random& random, bool give_up);
  // The same while that leaves fewer bytes. Where the estimates are wrong, a drop makes re-runs that
  // take more bytes than it frees, and the drops that follow from it make a plan that costs many
  // times as much; there it stops. The state is the one with the lowest peak of all on the way.
  bool relieve_while_better(IntervalState& state, Random& random);
  // Holds dropped values where there is room.
  void refill(IntervalState& state, Random& random);
  // Instead of the problem's.
  void set_budget(Bytes budget) { budget_ = budget; }
  // The width of the random factor in scores: 0 is deterministic.
  void set_blur(double blur) { blur_ = blur; }

  // The plan is still too large and already costs so much that no repair stays within the cost cap.
  bool far_beyond_the_cap(const IntervalPlan& plan) const;
  // Each drop causes re-runs that cause further drops: the repair diverges.
  bool runs_away(const IntervalPlan& plan) const;

  const IntervalSpace& space() const { return space_; }
  Effort& effort() const { return effort_; }
  Bytes budget() const { return budget_; }

 private:
  // One way to have fewer bytes at an op: values are dropped, perhaps after a value that they can
  // be made from is held in their place.
  struct Eviction {
    double score = 0;
    std::vector<IntervalId> dropped;
    std::optional<IntervalId> held;
  };

  bool at_once(const IntervalPlan& plan) const;
  bool relieve_round(IntervalState& state, Random& random, bool give_up);
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
  double price_of_dropping(IntervalId g, const Decisions& decisions);
  double rerun_price(OpId op, std::uint32_t at, const Decisions& decisions, int depth);
  double blurred(double value, Random& random) const;

  const IntervalSpace& space_;
  Effort& effort_;
  Bytes budget_;
  IdVector<OpId, std::uint32_t> mark_;
  std::uint32_t round_ = 0;
  double blur_ = 0.3;
};

}  // namespace regen::search
