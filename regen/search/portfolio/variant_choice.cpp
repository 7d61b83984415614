#include "regen/search/portfolio/variant_choice.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "regen/base/tolerance.h"
#include "regen/plan/explain.h"
#include "regen/search/bounds/covering_bound.h"
#include "regen/search/build/sequence.h"
#include "regen/search/comparison.h"
#include "regen/search/effort_fraction.h"
#include "regen/search/judge.h"
#include "regen/search/local/local_search.h"
#include "regen/search/portfolio/portfolio.h"
#include "regen/search/portfolio/variant_refinement.h"

namespace regen::search {
namespace {

constexpr double kNoCost = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostCaps = 12;
// Single changes that are tried, each at the price of a quick plan.
constexpr std::size_t kMostChanges = 48;
constexpr std::size_t kFewChoices = 64;
constexpr std::size_t kFewOps = 60;

VariantDecision decision_of_one(const Graph& graph, OpId op) {
  VariantDecision decision{.ops = {op}, .choices = {}};
  for (VariantId v : plain_alternatives(graph, op)) decision.choices.push_back({v});
  return decision;
}

VariantDecision decision_of_group(const Graph& graph, std::vector<OpId> ops) {
  VariantDecision decision{.ops = std::move(ops), .choices = {}};
  for (std::size_t i = 0; i < graph.variants(decision.ops[0]).size(); ++i) {
    auto& choice = decision.choices.emplace_back();
    for (OpId op : decision.ops) choice.push_back(graph.variants(op)[i]);
  }
  return decision;
}

using Chosen = IdVector<OpId, VariantId>;

Chosen base_choice(const Graph& graph) {
  Chosen chosen(graph.num_ops());
  for (OpId op : graph.ops()) chosen[op] = base_variant(graph, op);
  return chosen;
}

void take(const VariantDecision& decision, std::size_t choice, Chosen& chosen) {
  for (std::size_t i = 0; i < decision.ops.size(); ++i) {
    chosen[decision.ops[i]] = decision.choices[choice][i];
  }
}

bool takes(const VariantDecision& decision, std::size_t choice, const Chosen& chosen) {
  return chosen[decision.ops[0]] == decision.choices[choice][0];
}

class QuickChoice {
 public:
  QuickChoice(const Problem& problem, Effort& effort)
      : problem_(problem),
        graph_(*problem.graph),
        effort_(effort),
        decisions_(variant_decisions(graph_)) {}

  Result<VariantView> best() {
    for (const Bytes cap : caps()) {
      REGEN_TRY(offer(fastest_everywhere([cap](OpId) { return cap; })));
    }
    if (!stage_bytes_.empty()) REGEN_TRY(offer(with_room_used()));
    REGEN_TRY(change_one_by_one());
    return std::move(*view_);
  }

 private:
  // All workspaces, or some of them from the largest to the smallest.
  std::vector<Bytes> caps() const {
    std::vector<Bytes> sizes;
    for (const VariantDecision& decision : decisions_) {
      for (const auto& choice : decision.choices) {
        for (VariantId v : choice) sizes.push_back(graph_.workspace(v));
      }
    }
    std::ranges::sort(sizes, std::ranges::greater{});
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    std::vector<Bytes> some;
    for (std::size_t i = 0; i < kMostCaps; ++i) {
      some.push_back(sizes[i * (sizes.size() - 1) / (kMostCaps - 1)]);
    }
    some.erase(std::unique(some.begin(), some.end()), some.end());
    return some;
  }

  Chosen fastest_everywhere(const std::function<Bytes(OpId)>& allowed) const {
    Chosen chosen = base_choice(graph_);
    for (const VariantDecision& decision : decisions_) {
      take(decision, fastest_within(graph_, decision, allowed), chosen);
    }
    return chosen;
  }

  // What the best plan so far leaves free while an op runs may be its workspace.
  Chosen with_room_used() const {
    return fastest_everywhere([&](OpId op) {
      return graph_.workspace(view_->chosen()[op]) + *problem_.budget - stage_bytes_[op.index()];
    });
  }

  Status change_one_by_one() {
    std::size_t tries = 0;
    for (const VariantDecision& decision : decisions_) {
      for (std::size_t i = 0; i < decision.choices.size(); ++i) {
        if (takes(decision, i, view_->chosen())) continue;
        if (tries++ == kMostChanges || effort_.exhausted()) return {};
        Chosen changed = view_->chosen();
        take(decision, i, changed);
        REGEN_TRY(offer(std::move(changed)));
      }
    }
    return {};
  }

  Bytes workspaces(const VariantView& view) const {
    Bytes sum = 0;
    for (OpId op : graph_.ops()) sum += graph_.workspace(view.chosen()[op]);
    return sum;
  }

  Status offer(Chosen chosen) {
    if (view_ && effort_.exhausted()) return {};
    REGEN_ASSIGN(VariantView view, VariantView::make(graph_, std::move(chosen)));
    QuickPlan quick = quick_plan(problem_, view.graph(), effort_);
    // Without a plan the choice that could need less is the better one.
    const Worth worth =
        quick.plan ? Worth(quick.cost(), 0, 0) : Worth(kNoCost, quick.bound, workspaces(view));
    if (view_ && worth >= worth_) return {};
    worth_ = worth;
    stage_bytes_ = quick.plan ? std::move(quick.plan->stage_bytes) : std::vector<Bytes>();
    view_ = std::move(view);
    return {};
  }

  // Less is better: the cost of a plan, or without one what it takes at least.
  using Worth = std::tuple<double, Bytes, Bytes>;

  const Problem& problem_;
  const Graph& graph_;
  Effort& effort_;
  const std::vector<VariantDecision> decisions_;
  std::optional<VariantView> view_;
  Worth worth_;
  std::vector<Bytes> stage_bytes_;
};

// Every choice, the one that costs least when all is kept first.
std::vector<Chosen> all_choices(const Graph& graph) {
  std::vector<Chosen> all{base_choice(graph)};
  for (const VariantDecision& decision : variant_decisions(graph)) {
    std::vector<Chosen> more;
    for (const Chosen& chosen : all) {
      for (std::size_t i = 0; i < decision.choices.size(); ++i) {
        more.push_back(chosen);
        take(decision, i, more.back());
      }
    }
    all = std::move(more);
  }
  return all;
}

double cost_of(const Graph& graph, const Chosen& chosen) {
  double sum = 0;
  for (OpId op : graph.ops()) sum += graph.cost(chosen[op]);
  return sum;
}

class EveryChoice {
 public:
  EveryChoice(const Problem& problem, Effort& effort, const PlanOneChoice& plan)
      : problem_(problem), graph_(*problem.graph), effort_(effort), plan_(plan) {
    problem_.observer = nullptr;
  }

  Result<Proposal> run() {
    std::vector<Chosen> all = all_choices(graph_);
    std::ranges::stable_sort(all, {}, [&](const Chosen& c) { return cost_of(graph_, c); });
    const double fastest = least_cost(graph_);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double least = cost_of(graph_, all[i]);
      // A run that costs more than another way of its op may take that one in the end, where there
      // is room: so nothing but the least of all ways excludes what follows.
      if (best_ && fastest >= best_cost_) {
        bound_ = std::min(bound_, least);
        break;
      }
      REGEN_TRY(try_choice(std::move(all[i]), all.size() - i));
    }
    return proposal();
  }

 private:
  Status try_choice(Chosen chosen, std::size_t left) {
    REGEN_ASSIGN(const VariantView view, VariantView::make(graph_, std::move(chosen)));
    if (structural_bound(view.graph()).bytes > *problem_.budget) return {};  // needs no bound
    Problem problem = problem_;
    problem.graph = &view.graph();
    const Plan start = best_ ? view.viewed(*best_->plan) : Plan{};
    if (best_) problem.start = &start;
    Effort own(fraction_of(effort_, 1.0 / static_cast<double>(left)));
    REGEN_ASSIGN(Proposal proposal, plan_(problem, own));
    effort_.add(own.work());
    if (proposal.status == PlanStatus::kInfeasible) return {};
    bound_ = std::min(bound_, std::max(proposal.lower_bound, view.graph().base_cost()));
    if (proposal.lower_bound > view.graph().base_cost()) {
      kind_ = std::max(kind_, proposal.bound_kind);
    }
    if (!proposal.plan) return {};
    REGEN_ASSIGN(proposal.plan,
                 with_fastest_variants(graph_, view.original(std::move(*proposal.plan)),
                                       problem_.link, *problem_.budget));
    REGEN_ASSIGN(const Simulation simulation,
                 simulate(graph_, *proposal.plan, {.link = problem_.link}));
    const bool fits = within_limits(problem_, simulation);
    if (best_ && (!fits || simulation.cost >= best_cost_)) return {};
    if (fits) best_cost_ = simulation.cost;
    best_ = std::move(proposal);
    return {};
  }

  // Whether a plan can run an op in one way and then in another, so that the best of all choices is
  // not the best of all plans.
  bool runs_may_differ() const {
    return std::ranges::any_of(graph_.ops(), [&](OpId op) {
      const bool again =
          graph_.recomputable(op) && graph_.mutates(op).empty() &&
          (problem_.options.recompute_gradients || graph_.phase(op) == Phase::kForward);
      return again && !graph_.choice_group(op).valid() && plain_alternatives(graph_, op).size() > 1;
    });
  }

  Proposal proposal() {
    if (!best_) {
      const bool none = bound_ == kNoCost;
      return {.status = none ? PlanStatus::kInfeasible : PlanStatus::kUnknown,
              .note = "no choice of algorithms has a plan"};
    }
    if (runs_may_differ()) {
      bound_ = covering_bound(graph_, problem_.link, *problem_.budget, effort_,
                              problem_.host_budget.value_or(kMaxBytes))
                   .cost;
      kind_ = BoundKind::kOrder;
    }
    best_->lower_bound = std::min(bound_, best_cost_);
    best_->bound_kind = kind_;
    const bool proven = best_cost_ < kNoCost && at_most(best_cost_, bound_);
    best_->status = proven ? PlanStatus::kOptimal : PlanStatus::kFeasible;
    return std::move(*best_);
  }

  Problem problem_;
  const Graph& graph_;
  Effort& effort_;
  const PlanOneChoice& plan_;
  std::optional<Proposal> best_;
  double best_cost_ = kNoCost;
  double bound_ = kNoCost;
  BoundKind kind_ = BoundKind::kEveryPlan;
};

}  // namespace

std::vector<VariantDecision> variant_decisions(const Graph& graph) {
  std::vector<VariantDecision> decisions;
  std::map<ChoiceGroupId, std::vector<OpId>> groups;
  for (OpId op : graph.ops()) {
    if (graph.choice_group(op).valid()) {
      groups[graph.choice_group(op)].push_back(op);
    } else {
      decisions.push_back(decision_of_one(graph, op));
    }
  }
  for (auto& [group, ops] : groups) decisions.push_back(decision_of_group(graph, std::move(ops)));
  std::erase_if(decisions, [](const VariantDecision& d) { return d.choices.size() < 2; });
  return decisions;
}

std::size_t fastest_within(const Graph& graph, const VariantDecision& decision,
                           const std::function<Bytes(OpId)>& allowed) {
  const auto worth = [&](std::size_t choice) {
    Bytes over = 0;
    Bytes workspace = 0;
    double cost = 0;
    for (VariantId v : decision.choices[choice]) {
      over = std::max(over, graph.workspace(v) - allowed(graph.op(v)));
      workspace += graph.workspace(v);
      cost += graph.cost(v);
    }
    return std::tuple(over, cost, workspace);
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < decision.choices.size(); ++i) {
    if (worth(i) < worth(best)) best = i;
  }
  return best;
}

IdVector<OpId, VariantId> smallest_choice(const Graph& graph) {
  Chosen chosen = base_choice(graph);
  for (const VariantDecision& decision : variant_decisions(graph)) {
    take(decision, fastest_within(graph, decision, [](OpId) { return Bytes{0}; }), chosen);
  }
  return chosen;
}

Result<VariantView> choose_variants(const Problem& problem, Effort& effort) {
  return QuickChoice(problem, effort).best();
}

bool few_choices(const Graph& graph) {
  if (graph.num_ops() > kFewOps) return false;
  std::size_t count = 1;
  for (const VariantDecision& decision : variant_decisions(graph)) {
    count *= decision.choices.size();
    if (count > kFewChoices) return false;
  }
  return true;
}

Result<Proposal> plan_every_choice(const Problem& problem, Effort& effort,
                                   const PlanOneChoice& plan) {
  return EveryChoice(problem, effort, plan).run();
}

}  // namespace regen::search
