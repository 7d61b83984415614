// Repair and descent that evaluate every single change. For budgets at which estimates of what a
// drop saves (interval_repair.h) do not suffice. Both take many evaluations: a descent, and a repair
// from keeping everything, are for small graphs. On others a repair completes what estimates have
// brought close to the budget.
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
        budget_(repair.budget()),
        in_vain_(repair.space().model.size(), 0) {}

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

  // A change that takes something off the overflow.
  struct Helpful {
    double price = 0;
    const Change* change = nullptr;
  };

  std::uint32_t position_over_budget(const IntervalPlan& plan, Random& random) const;
  std::vector<Change> changes_at(std::uint32_t position, const IntervalState& state) const;
  void add_changes(TensorId t, std::uint32_t touched, std::uint32_t position_stage,
                   std::uint32_t wanted, const Decisions& decisions,
                   std::vector<Change>& changes) const;
  std::optional<double> price_of_change(const IntervalState& before,
                                        const IntervalState& after) const;
  std::optional<IntervalState> cheapest_change(const IntervalState& state,
                                               std::span<const Change> changes, Random& random,
                                               std::vector<Helpful>& helpful);
  bool change_for(std::uint32_t stage, std::vector<Change>& changes, IntervalState& state,
                  Random& random);
  void change_further(IntervalState& state, std::uint32_t stage, std::vector<Helpful> helpful);
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
  std::vector<char> in_vain_;  // by interval: the last change that was tried there did not help
};

}  // namespace regen::search
