#include "regen/published/lower_sets/lower_sets_published.h"
#include "regen/published/options.h"

#include <algorithm>

#include "regen/plan/explain.h"
#include "regen/published/lower_sets/canonical_strategy.h"
#include "regen/published/lower_sets/format/schedule_run.h"
#include "regen/published/lower_sets/lower_set_blocks.h"
#include "regen/published/lower_sets/lower_set_polish.h"
#include "regen/published/lower_sets/lower_set_published.h"
#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

class PublishedPlanner {
 public:
  PublishedPlanner(const search::Problem& problem, Effort& effort)
      : problem_(problem),
        effort_(effort),
        graph_(*problem.graph),
        nodes_(lower_set_nodes(graph_, /*with_loss=*/true)) {
    find_canonical();
  }

  Result<search::Proposal> plan(PublishedSets sets);

 private:
  void find_canonical();
  Result<search::Proposal> plan_over(const LowerSetFamily& family, std::string note);
  Result<search::Proposal> propose(const LowerSetFamily& family,
                                   const std::vector<std::uint32_t>& chain, std::string note);

  const search::Problem& problem_;
  Effort& effort_;
  const Graph& graph_;
  LowerSetNodes nodes_;
  // The published back end, where the graph came from a published file.
  std::optional<CanonicalStrategy> canonical_;
};

void PublishedPlanner::find_canonical() {
  const IdVector<OpId, char> repeatable = search::repeatable_ops(graph_, /*forward_only=*/false);
  if (!std::ranges::all_of(nodes_.ops, [&](OpId op) { return repeatable[op] != 0; })) return;
  auto strategy = CanonicalStrategy::of(graph_, nodes_);
  if (strategy.ok()) canonical_ = std::move(*strategy);
}

Result<search::Proposal> PublishedPlanner::propose(const LowerSetFamily& family,
                                                   const std::vector<std::uint32_t>& chain,
                                                   std::string note) {
  const auto sets = sets_of(family, chain);
  note += format_count(chain.size(), "block");
  if (!canonical_) {
    const LowerSetBlocks blocks(graph_, nodes_);
    const auto sequence = blocks.sequence(sets, /*rerun_last=*/true, effort_);
    return search::Proposal{.plan = search::plan_from_sequence(graph_, sequence),
                            .note = std::move(note)};
  }
  const Schedule schedule = canonical_->schedule(sets);
  effort_.add(static_cast<std::int64_t>(schedule.size()));
  REGEN_ASSIGN(const ScheduleRun run, run_schedule(canonical_->file(), schedule, "schedule"));
  note += "; as the published code runs it: overhead " +
          format_cost(run.overhead_cost, graph_.cost_unit()) + ", peak " +
          format_grouped(run.peak_bytes) + " bytes, " + format_grouped(run.activation_peak_bytes) +
          " without parameter gradients";
  return search::Proposal{
      .plan = search::plan_from_sequence(graph_, canonical_->sequence(schedule)),
      .note = std::move(note)};
}

Result<search::Proposal> PublishedPlanner::plan_over(const LowerSetFamily& family,
                                                     std::string note) {
  const Preference prefer = options_of(problem_).prefer;
  Bytes budget = 2 * family.bytes(family.size() - 1);  // no limit
  if (problem_.budget) budget = std::min(budget, *problem_.budget - graph_.fixed_bytes());
  LowerSetAnswer answer = solve_published(nodes_, family, budget, prefer, effort_);
  if (!answer.strategy) {
    // Within this model only: liveness might fit the same chain into the budget.
    note += answer.proven ? "no chain of lower sets fits" : "the limit was reached first";
    return search::Proposal{.status = search::PlanStatus::kUnknown, .note = std::move(note)};
  }
  PublishedStrategy strategy = std::move(*answer.strategy);
  if (canonical_ && prefer == Preference::kTime) {
    const auto executed = [&](const std::vector<std::uint32_t>& chain) {
      effort_.add(1);
      return canonical_->overhead(sets_of(family, chain));
    };
    strategy = polish_published(nodes_, family, budget, std::move(strategy), executed);
  }
  note += "overhead " + format_cost(strategy.overhead, graph_.cost_unit()) + ", peak " +
          format_grouped(strategy.peak) + " bytes, ";
  return propose(family, strategy.chain, std::move(note));
}

Result<search::Proposal> PublishedPlanner::plan(PublishedSets sets) {
  if (sets == PublishedSets::kCuts) {
    const LowerSetFamily cuts = LowerSetFamily::cuts(nodes_);
    return propose(cuts, published_cuts(cuts), "published choice of cuts, ");
  }
  if (sets == PublishedSets::kAll) {
    const auto all = LowerSetFamily::all(nodes_, kMaxLowerSets, kMaxLatticeBytes, effort_);
    if (all) return plan_over(*all, "published model, ");
  }
  return plan_over(LowerSetFamily::pruned(nodes_), "published model, one set for each op, ");
}

}  // namespace

Result<search::Proposal> plan_published_lower_sets(const search::Problem& problem,
                                                   PublishedSets sets, Effort& effort) {
  return PublishedPlanner(problem, effort).plan(sets);
}

}  // namespace regen::published
