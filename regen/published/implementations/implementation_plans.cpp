#include "regen/published/implementations/implementation_plans.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "regen/base/random.h"
#include "regen/base/tolerance.h"
#include "regen/plan/explain.h"
#include "regen/plan/whereabouts.h"
#include "regen/published/implementations/implementation_choice.h"
#include "regen/search/bounds/covering_bound.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"
#include "regen/search/comparison.h"
#include "regen/search/effort_fraction.h"
#include "regen/search/judge.h"
#include "regen/search/local/local_search.h"
#include "regen/search/portfolio/portfolio.h"
#include "regen/search/portfolio/variant_choice.h"
#include "regen/search/portfolio/variant_refinement.h"
#include "regen/search/registry.h"

namespace regen::published {
namespace {

// So many choices, on graphs of so many ops, all get a quick plan, and the best a thorough one.
constexpr std::size_t kFewChoices = 64;
constexpr std::size_t kFewOps = 60;
constexpr std::size_t kPlannedChoices = 8;
// Of what is left when it is their turn.
constexpr double kBaseFraction = 0.3;    // what all other planners take
constexpr double kOnlyFraction = 0.6;    // the same, where nothing else can be taken
constexpr double kQuickFraction = 0.2;   // choosing by quick plans
constexpr double kChosenFraction = 0.3;  // planning what they chose
constexpr double kMonetFraction = 0.3;
constexpr double kWalkFraction = 0.4;  // short searches of a small graph's choices
constexpr double kBoundFraction = 0.1;
constexpr double kChangeFraction =
    0.5;  // short searches of changed choices; then the best is planned
// Beyond these it finds nothing in time.
constexpr std::size_t kMostMonetOps = 500;
// Ops that change their implementation at once, at most, in a random change.
constexpr std::int64_t kMostChangedTogether = 3;
// A changed choice is searched further if its starts cost at most so many times the best plan.
constexpr double kWorthSearching = 1.3;
// Of one such search. It goes on from the best plan, and most changes are no improvement: many
// choices searched shortly find more than few searched long.
constexpr std::int64_t kSearchWork = 2'000;
// Changes in a row without a better plan end the search over choices.
constexpr int kMostFruitless = 500;
constexpr int kMostKnown = 1'000;  // and so many that were tried before
constexpr std::int64_t kMaxSeed = 1'000'000'000;

class ImplementationPlans {
 public:
  ImplementationPlans(const search::Problem& problem, Effort& effort,
                      const search::PlanAsItIs& plan)
      : problem_(problem),
        graph_(*problem.graph),
        effort_(effort),
        plan_(plan),
        all_(graph_),
        best_(problem),
        best_choice_(all_.base()) {}

  Result<search::Proposal> run() {
    Effort own(search::fraction_of(effort_, kBoundFraction));
    const double bound =
        search::covering_bound(graph_, problem_.link, *problem_.budget, own, host()).cost;
    effort_.add(own.work());
    bound_ = std::max(std::isfinite(bound) ? bound : 0.0, search::least_cost(graph_));
    if (search::starts_from_plan(problem_)) REGEN_TRY(start_from(*problem_.start));
    std::optional<std::vector<ChosenImplementations>> few;
    few = all_.all(graph_.num_ops() <= kFewOps ? kFewChoices : 1);
    if (few && few->size() == 1) {
      REGEN_TRY(try_choice(all_.base(), kOnlyFraction));
      if (may_improve()) REGEN_TRY(ask_monet(1));
    } else {
      if (graph_.num_ops() <= kFewOps) REGEN_TRY(walk_over_choices());
      REGEN_TRY(few ? try_best_of(std::move(*few)) : try_promising());
    }
    REGEN_TRY(change_choices());
    return proposal();
  }

 private:
  Bytes host() const { return problem_.host_budget.value_or(kMaxBytes); }

  Status start_from(const Plan& plan) {
    REGEN_ASSIGN(const bool better, offer(plan, "the plan it started from"));
    const auto chosen = all_.of_plan(plan);
    if (better && chosen) best_choice_ = *chosen;
    return {};
  }

  // On a small graph short searches rank choices better than quick plans do.
  Status walk_over_choices() {
    Random random(problem_.options.seed + 1);
    Effort own(search::fraction_of(effort_, kWalkFraction));
    REGEN_TRY(search_shortly(all_.base(), random, own));
    REGEN_TRY(change_at_random(ops_with_choices(), random, own));
    effort_.add(own.work());
    return can_go_on() ? try_choice(best_choice_, kChosenFraction) : Status{};
  }

  std::vector<OpId> ops_with_choices() const {
    std::vector<OpId> ops;
    for (OpId op : graph_.ops()) {
      if (all_.of(op).size() > 1) ops.push_back(op);
    }
    return ops;
  }

  // Of all choices those with the best quick plans.
  Status try_best_of(std::vector<ChosenImplementations> choices) {
    REGEN_TRY(try_choice(all_.base(), kBaseFraction));
    Effort quick(search::fraction_of(effort_, kQuickFraction));
    std::vector<std::pair<QuickWorth, std::size_t>> order;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      REGEN_ASSIGN(const search::VariantView view, all_.view(choices[i]));
      order.emplace_back(quick_worth(problem_, view.graph(), quick), i);
    }
    effort_.add(quick.work());
    std::ranges::sort(order);
    const std::size_t count = std::min(order.size(), kPlannedChoices);
    for (std::size_t i = 0; i < count && may_improve(); ++i) {
      REGEN_TRY(try_choice(choices[order[i].second], 1.0 / static_cast<double>(count - i + 1)));
    }
    return may_improve() ? ask_monet(1) : Status{};
  }

  Status try_promising() {
    REGEN_TRY(try_choice(all_.base(), kBaseFraction));
    if (!may_improve()) return {};
    Effort quick(search::fraction_of(effort_, kQuickFraction));
    REGEN_ASSIGN(const Preferred preferred, algorithms_of_base(quick));
    REGEN_ASSIGN(const ChosenImplementations chosen,
                 choose_implementations(problem_, all_, preferred, quick));
    effort_.add(quick.work());
    REGEN_TRY(try_choice(chosen, kChosenFraction));
    return may_improve() ? ask_monet(kMonetFraction) : Status{};
  }

  // Variants that suit the budget where all take their base implementation.
  using Preferred = IdVector<OpId, VariantId>;
  Result<Preferred> algorithms_of_base(Effort& effort) const {
    REGEN_ASSIGN(const search::VariantView base, all_.view(all_.base()));
    Preferred preferred = base.chosen();
    if (search::variant_decisions(base.graph()).empty()) return preferred;
    search::Problem inner = problem_;
    inner.graph = &base.graph();
    inner.observer = nullptr;
    REGEN_ASSIGN(const search::VariantView algorithms, search::choose_variants(inner, effort));
    for (OpId op : graph_.ops()) preferred[op] = base.original(op, algorithms.chosen()[op]);
    return preferred;
  }

  bool may_improve() const { return !nothing_better() && (!fits() || !effort_.exhausted()); }

  Status try_choice(const ChosenImplementations& chosen, double fraction) {
    if (std::ranges::find(planned_, chosen) != planned_.end()) return {};
    planned_.push_back(chosen);
    tried_.push_back(chosen);
    REGEN_ASSIGN(const search::VariantView view, all_.view(chosen));
    if (structural_bound(view.graph()).bytes > *problem_.budget) return {};
    Effort own(search::fraction_of(effort_, fraction));
    const double least =
        search::covering_bound(view.graph(), problem_.link, *problem_.budget, own, host()).cost;
    // Plans in other orders than the graph's are sought elsewhere, but for what others propose.
    if (fits() && least >= cost() && chosen != all_.base()) {
      effort_.add(own.work());
      return {};
    }
    REGEN_TRY(plan_view(view, chosen, own));
    effort_.add(own.work());
    return graph_.num_ops() <= kFewOps && may_improve() ? try_alone(view, chosen, fraction)
                                                        : Status{};
  }

  Status plan_view(const search::VariantView& view, const ChosenImplementations& chosen,
                   Effort& own) {
    search::Problem inner = problem_;
    inner.graph = &view.graph();
    inner.observer = nullptr;  // its bounds are for that choice
    const std::optional<Plan> start = best_plan_in(view);
    if (start && simulate(view.graph(), *start, {.link = problem_.link}).ok()) {
      inner.start = &*start;
    }
    REGEN_ASSIGN(search::Proposal proposal, plan_(inner, own));
    if (!proposal.plan) return {};
    REGEN_ASSIGN(const bool better, offer(view.original(std::move(*proposal.plan)), proposal.note));
    if (better) best_choice_ = chosen;
    return {};
  }

  // The best plan with the variants of a view: a start, which need not be a plan of the view.
  std::optional<Plan> best_plan_in(const search::VariantView& view) const {
    if (!best_.best()) return std::nullopt;
    return view.viewed(best_.best()->plan);
  }

  // With the base variants of the view alone: exact methods search only where no op has another
  // one, such as one that overwrites what it reads.
  Status try_alone(const search::VariantView& view, const ChosenImplementations& chosen,
                   double fraction) {
    IdVector<OpId, std::vector<std::size_t>> numbers(graph_.num_ops());
    bool others = false;
    for (const OpId op : graph_.ops()) {
      const VariantId base = view.original(op, search::base_variant(view.graph(), op));
      numbers[op] = {base.index() - graph_.default_variant(op).index()};
      others |= view.graph().variants(op).size() > 1;
    }
    if (!others) return {};
    REGEN_ASSIGN(const auto alone, search::VariantView::with_variants(graph_, std::move(numbers)));
    if (structural_bound(alone.graph()).bytes > *problem_.budget) return {};
    Effort own(search::fraction_of(effort_, fraction));
    REGEN_TRY(plan_view(alone, chosen, own));
    effort_.add(own.work());
    return {};
  }

  // Short searches find choices, all planners together the best plan of one, in turns while either
  // finds anything.
  Status change_choices() {
    const std::vector<OpId> ops = ops_with_choices();
    if (ops.empty()) return {};
    Random random(problem_.options.seed);
    for (bool go_on = true; go_on && can_go_on();) {
      const double before = fits() ? cost() : std::numeric_limits<double>::infinity();
      Effort own(search::fraction_of(effort_, kChangeFraction));
      REGEN_TRY(change_at_random(ops, random, own));
      effort_.add(own.work());
      if (can_go_on()) REGEN_TRY(try_choice(best_choice_, 1));
      go_on = fits() && clearly_below(cost(), before);
    }
    return {};
  }

  // Some ops at a time take another implementation, from the choice of the best plan on, with a short
  // search for each: quick plans (choose_implementations) often rank choices wrongly.
  Status change_at_random(const std::vector<OpId>& ops, Random& random, Effort& effort) {
    for (int fruitless = 0, known = 0; fruitless < kMostFruitless && known < kMostKnown &&
                                       !nothing_better() && !effort.exhausted();) {
      const ChosenImplementations changed = randomly_changed(ops, random);
      ++known;
      if (std::ranges::find(tried_, changed) != tried_.end()) continue;
      tried_.push_back(changed);
      known = 0;
      const double before = cost();
      REGEN_TRY(search_shortly(changed, random, effort));
      fruitless = clearly_below(cost(), before) ? 0 : fruitless + 1;
    }
    return {};
  }

  // The choice of the best plan where that cannot be changed as it was to be.
  ChosenImplementations randomly_changed(const std::vector<OpId>& ops, Random& random) const {
    ChosenImplementations changed = best_choice_;
    for (std::int64_t i = random.between(1, kMostChangedTogether); i > 0; --i) {
      const OpId op = ops[static_cast<std::size_t>(random.between(0, std::ssize(ops) - 1))];
      changed[op] = static_cast<std::size_t>(random.between(0, std::ssize(all_.of(op)) - 1));
    }
    return all_.settle(changed) ? changed : best_choice_;
  }

  bool can_go_on() const { return !nothing_better() && !effort_.exhausted(); }

  Status search_shortly(const ChosenImplementations& chosen, Random& random, Effort& effort) {
    REGEN_ASSIGN(const search::VariantView view, all_.view(chosen));
    if (structural_bound(view.graph()).bytes > *problem_.budget) return {};
    if (!search::check_sequences_possible(view.graph()).ok()) return {};
    search::Problem inner = problem_;
    inner.graph = &view.graph();
    inner.observer = nullptr;
    search::LocalSearch search(inner, effort);
    if (const std::optional<Plan> start = best_plan_in(view)) search.start_from(*start);
    const auto seed = static_cast<std::uint64_t>(random.between(0, kMaxSeed));
    const auto is_promising = [&] {
      return search.best() && search.best()->cost <= kWorthSearching * cost();
    };
    if (!is_promising()) {
      search.start_in_blocks();
      search.start(/*give_up=*/true);
    }
    if (is_promising() || !search.best()) search.start_exactly(seed);
    if (is_promising()) search.improve(seed, bound_, {.most = {.work = kSearchWork}});
    if (!search.best()) return {};
    REGEN_ASSIGN(const bool better, offer(view.original(search.best_plan()), "local search"));
    if (better) best_choice_ = chosen;
    return {};
  }

  // Its own plan, which may take different implementations in different runs, and one by its
  // choice.
  Status ask_monet(double fraction) {
    const search::Planner* monet = search::planner_for(problem_, "monet");
    if (monet == nullptr || graph_.num_ops() > kMostMonetOps) return {};
    search::Problem quiet = problem_;
    quiet.observer = nullptr;
    auto outcome = search::solve(*monet, quiet, search::fraction_of(effort_, fraction));
    if (!outcome.ok()) return {};  // a graph that it cannot take
    effort_.add(outcome->work);
    if (!outcome->plan) return {};
    const auto chosen = all_.of_plan(*outcome->plan);
    REGEN_ASSIGN(const bool better, offer(std::move(*outcome->plan), "monet"));
    if (better && chosen) best_choice_ = *chosen;
    if (chosen && may_improve()) REGEN_TRY(try_choice(*chosen, kChosenFraction));
    return {};
  }

  // Each run takes the fastest variant for which there is room. True if there was no better plan.
  Result<bool> offer(Plan plan, std::string note) {
    if (problem_.options.keep_order && !keeps_order(plan)) return false;
    REGEN_ASSIGN(plan, search::with_fastest_variants(graph_, std::move(plan), problem_.link,
                                                     *problem_.budget));
    REGEN_ASSIGN(const Simulation simulation, simulate(graph_, plan, {.link = problem_.link}));
    return best_.offer({std::move(plan), simulation, std::move(note)});
  }

  bool fits() const {
    return best_.best() && search::within_limits(problem_, best_.best()->simulation);
  }
  // Of the best plan, whether it fits or not.
  double cost() const {
    return best_.best() ? best_.best()->simulation.cost : std::numeric_limits<double>::infinity();
  }
  bool nothing_better() const { return fits() && at_most(cost(), bound_); }

  Result<search::Proposal> proposal() {
    const bool found = fits();
    const double best_cost = found ? cost() : std::numeric_limits<double>::infinity();
    search::Proposal result = std::move(best_).proposal("no choice of implementations has a plan");
    if (!result.plan) return result;
    const bool in_order = keeps_order(*result.plan);
    const double bound = in_order ? bound_ : search::least_cost(graph_);
    result.bound_kind = in_order ? search::BoundKind::kOrder : search::BoundKind::kEveryPlan;
    result.lower_bound = std::min(bound, best_cost);
    if (found && at_most(best_cost, result.lower_bound)) {
      result.status = search::PlanStatus::kOptimal;
    }
    return result;
  }

  const search::Problem& problem_;
  const Graph& graph_;
  Effort& effort_;
  const search::PlanAsItIs& plan_;
  const Implementations all_;
  search::BestCandidate best_;
  double bound_ = 0;
  ChosenImplementations best_choice_;           // of the best plan, or of all base variants
  std::vector<ChosenImplementations> planned_;  // by all planners
  std::vector<ChosenImplementations> tried_;    // these, and those that were searched shortly
};

}  // namespace

Result<search::Proposal> plan_implementations(const search::Problem& problem, Effort& effort,
                                              const search::PlanAsItIs& plan) {
  return ImplementationPlans(problem, effort, plan).run();
}

}  // namespace regen::published
