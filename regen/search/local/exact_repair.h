// Repair and descent that evaluate every single change. For budgets at which estimates of what a
// drop saves (interval_repair.h) do not suffice; both take many evaluations, so they are for small
// graphs.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "regen/search/local/interval_repair.h"

namespace regen::search {

class ExactRepair {
 public:
  // With the space, the effort and the budget of `repair`, which must outlive it.
  explicit ExactRepair(IntervalRepair& repair)
      : repair_(repair),
        space_(repair.space()),
        effort_(repair.effort()),
        budget_(repair.budget()) {}

  // Until the plan fits, takes the cheapest of the changes at a place above the budget.
  bool relieve(IntervalState& state, Random& random);
  // Every other decision for each interval, and no early drop for each there is, in a random order,
  // and early runs where ops wait for copies, until nothing is cheaper.
  void descend(IntervalState& state, Random& random);

 private:
  // One change of the decisions.
  struct Change {
    TensorId tensor;
    IntervalId interval = 0;
    Holding holding = Holding::kDropped;
    std::optional<EarlyDrop> early_drop;  // instead
    std::uint32_t wanted = 0;             // the stage of its next use
    std::optional<EarlyRun> early_run;    // with it: an output comes back before it is awaited

    void apply(Decisions& decisions) const;
  };

  std::uint32_t position_over_budget(const IntervalPlan& plan, Random& random) const;
  std::vector<Change> changes_at(std::uint32_t position, const IntervalState& state) const;
  void add_changes(TensorId t, std::uint32_t touched, std::uint32_t position_stage,
                   std::uint32_t wanted, const Decisions& decisions,
                   std::vector<Change>& changes) const;
  std::optional<IntervalState> cheapest_change(const IntervalState& state,
                                               std::span<const Change> changes, Random& random);
  IntervalState with_change(const IntervalState& state, const Change& change);
  std::vector<std::uint32_t> return_stages(IntervalId g, std::uint32_t after) const;
  bool try_other_returns(IntervalState& state, IntervalId g);
  void hold_lost(IntervalState& state);
  double overflow(const IntervalPlan& plan) const;
  bool try_other_holdings(IntervalState& state, IntervalId g, Random& random);
  bool try_without(IntervalState& state, const EarlyDrop& drop, Random& random);
  bool try_other_early_runs(IntervalState& state);
  bool may_fit(const IntervalPlan& plan, TensorId t, std::uint32_t first, std::uint32_t last,
               Random& random) const;
  bool try_instead(IntervalState& state, Decisions decisions);

  IntervalRepair& repair_;
  const IntervalSpace& space_;
  Effort& effort_;
  const Bytes budget_;
};

}  // namespace regen::search
