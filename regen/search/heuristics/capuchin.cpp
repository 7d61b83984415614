// Capuchin's policy: from the times of one run that keeps everything, swap the values that are
// free longest until the link is full, then recompute those that save most bytes per second of
// recomputation; then move prefetches ahead where the run still waits for them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "regen/search/build/accounting.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"
#include "regen/search/judge.h"
#include "regen/search/local/interval_evaluator.h"
#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

constexpr std::size_t kMostOps = 20'000;
// By how much a late prefetch is moved ahead in each round, in durations of its copy, and the
// number of rounds.
constexpr double kLeadStepInCopies = 0.05;
constexpr int kFeedbackRounds = 40;
// A value that needs more ops than this to be recomputed is not dropped.
constexpr std::size_t kMaxChainOps = 1000;
// How many choices are tried first, and to which part of them their number is found in any case.
constexpr std::size_t kFirstChoices = 64;
constexpr std::size_t kLateParts = 16;

// A reuse interval in which a value could be on the host.
struct Swap {
  IntervalId interval = 0;
  double freed_from = 0;  // its last use before ends
  double wanted_at = 0;   // its next use begins
  double out = 0;         // durations of the copies
  double in = 0;

  double free_time() const { return wanted_at - in - (freed_from + out); }
};

class Capuchin {
 public:
  // Needs a budget.
  Capuchin(const Problem& problem, Effort& effort)
      : problem_(without_gradients_again(problem)),
        graph_(*problem.graph),
        effort_(effort),
        space_(problem_),
        leads_(graph_.num_tensors(), 1),
        best_(problem) {}

  Result<Proposal> run() && {
    offer(0);
    if (!best_.best() || !within_limits(problem_, best_.best()->simulation)) {
      choose_swaps();
      choose_drops();
      offer(choices_needed());
      feed_back();
    }
    return std::move(best_).proposal("nothing was tried");
  }

 private:
  struct Choice {
    IntervalId interval = 0;
    Holding holding = Holding::kMoved;
  };

  static Problem without_gradients_again(const Problem& problem) {
    Problem once = problem;
    once.options.recompute_gradients = false;
    return once;
  }

  const ReuseInterval& interval(IntervalId g) const { return space_.model.interval(g); }
  Bytes bytes(IntervalId g) const { return graph_.bytes(interval(g).tensor); }

  // In the order of free times, while the copies of all that is chosen find a place on the link.
  void choose_swaps() {
    if (!problem_.link.can_move()) return;
    std::vector<double> start{0};
    for (OpId op : graph_.ops()) {
      start.push_back(start.back() + graph_.cost(base_variant(graph_, op)));
    }
    std::vector<Swap> swaps;
    for (const IntervalId g : space_.movable) {
      const auto size = static_cast<double>(bytes(g));
      swaps.push_back({g, start[interval(g).begin + 1], start[interval(g).end],
                       size / problem_.link.to_host, size / problem_.link.to_device});
    }
    std::ranges::stable_sort(swaps, std::ranges::greater{}, &Swap::free_time);
    IdVector<TensorId, char> moves(graph_.num_tensors(), 0);
    Bytes host_bytes = 0;
    std::vector<Swap> chosen;
    for (const Swap& swap : swaps) {
      if (swap.free_time() < 0 || effort_.exhausted()) break;
      const TensorId tensor = interval(swap.interval).tensor;
      const Bytes more = moves[tensor] ? 0 : graph_.bytes(tensor);
      if (host_bytes + more > problem_.host_budget.value_or(kMaxBytes)) continue;
      chosen.push_back(swap);
      if (!link_has_room(chosen)) {
        chosen.pop_back();
        continue;
      }
      host_bytes += more;
      moves[tensor] = 1;
      choices_.push_back({swap.interval, Holding::kMoved});
    }
  }

  // Copies out follow each other from when values are free, copies in end one by one right before
  // their use. Whether every value arrives on the host before its copy back must start.
  bool link_has_room(const std::vector<Swap>& chosen) {
    effort_.add(static_cast<std::int64_t>(chosen.size()));
    std::vector<std::size_t> order(chosen.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::vector<double> arrives(chosen.size());
    std::ranges::sort(order, {}, [&](std::size_t i) { return chosen[i].freed_from; });
    double busy = 0;
    for (const std::size_t i : order) {
      busy = arrives[i] = std::max(busy, chosen[i].freed_from) + chosen[i].out;
    }
    std::ranges::sort(order, std::ranges::greater{},
                      [&](std::size_t i) { return chosen[i].wanted_at; });
    double deadline = std::numeric_limits<double>::infinity();
    for (const std::size_t i : order) {
      deadline = std::min(deadline, chosen[i].wanted_at) - chosen[i].in;
      if (deadline < arrives[i]) return false;
    }
    return true;
  }

  // Largest bytes per cost of recomputation first, where the cost counts what has been dropped
  // before: it only grows, so a candidate is taken if it is still the best once it is counted anew.
  void choose_drops() {
    Decisions decisions = decisions_after(choices_.size());
    std::priority_queue<std::pair<double, IntervalId>> queue;
    for (const IntervalId g : space_.inner) {
      if (decisions[g] == Holding::kHeld) queue.emplace(worth_of_drop(decisions, g), g);
    }
    while (!queue.empty() && queue.top().first > 0 && !effort_.exhausted()) {
      const IntervalId g = queue.top().second;
      queue.pop();
      const double worth = worth_of_drop(decisions, g);
      if (!queue.empty() && queue.top().first > worth) {
        queue.emplace(worth, g);
        continue;
      }
      if (worth == 0) return;
      decisions[g] = Holding::kRecomputeEachUse;
      choices_.push_back({g, Holding::kRecomputeEachUse});
    }
  }

  // Bytes per cost; 0 if the value cannot be made again.
  double worth_of_drop(const Decisions& decisions, IntervalId g) {
    const double cost = cost_of_drop(decisions, g);
    const auto size = static_cast<double>(bytes(g));
    return std::isinf(cost) ? 0 : size / std::max(cost, std::numeric_limits<double>::min());
  }

  // Of making the value again where the interval ends.
  double cost_of_drop(const Decisions& decisions, IntervalId dropped) {
    double cost = 0;
    std::vector<OpId> todo{graph_.producer(interval(dropped).tensor)};
    std::vector<OpId> seen;
    while (!todo.empty()) {
      const OpId op = todo.back();
      todo.pop_back();
      if (std::ranges::find(seen, op) != seen.end()) continue;
      if (!space_.model.repeatable(op, interval(dropped).end) || seen.size() > kMaxChainOps) {
        return std::numeric_limits<double>::infinity();
      }
      seen.push_back(op);
      const VariantId variant = base_variant(graph_, op);
      cost += graph_.rerun_cost(variant);
      for (TensorId t : graph_.reads(variant)) {
        if (graph_.fixed(t)) continue;
        const IntervalId g = space_.model.interval_at(t, interval(dropped).end);
        if (!is_resident(decisions[g])) todo.push_back(graph_.producer(t));
      }
      effort_.add(1);
    }
    return cost;
  }

  Decisions decisions_after(std::size_t choices) const {
    Decisions decisions = space_.model.keep_nothing_longer();
    for (std::size_t i = 0; i < choices; ++i) {
      decisions[choices_[i].interval] = choices_[i].holding;
    }
    return decisions;
  }

  IntervalPlan evaluate(std::size_t choices) {
    IntervalPlan plan =
        search::evaluate(space_, decisions_after(choices), *problem_.budget, leads_);
    effort_.add(static_cast<std::int64_t>(plan.ops.size()));
    return plan;
  }

  // The least number that keeps the budget; all if not even they do. It is doubled before it is
  // bisected: with far more drops than needed, values are made from values that are made again, and
  // the plan has a hundred times the steps. For the same reason a late search still halves the
  // interval until all is not much more than needed.
  std::size_t choices_needed() {
    std::size_t too_few = 0;
    std::size_t enough = std::min(kFirstChoices, choices_.size());
    bool fits = false;
    while (enough < choices_.size() && !(fits = evaluate(enough).fits)) {
      too_few = enough;
      enough = std::min(2 * enough, choices_.size());
    }
    while (enough - too_few > 1) {
      const bool close = fits || enough - too_few <= enough / kLateParts;
      if (effort_.exhausted() && close) break;
      const std::size_t middle = too_few + (enough - too_few) / 2;
      const bool suffices = evaluate(middle).fits;
      fits |= suffices;
      (suffices ? enough : too_few) = middle;
    }
    return enough;
  }

  void offer(std::size_t choices) {
    chosen_ = choices;
    last_ = {.steps = steps_of(graph_, evaluate(choices))};
    auto simulation = simulate(graph_, last_, {.link = problem_.link});
    if (!simulation.ok()) return;
    const auto swaps =
        std::count_if(choices_.begin(), choices_.begin() + static_cast<std::ptrdiff_t>(choices),
                      [](const Choice& choice) { return choice.holding == Holding::kMoved; });
    const std::size_t drops = choices - static_cast<std::size_t>(swaps);
    best_.offer({last_, *std::move(simulation),
                 format_count(static_cast<std::size_t>(swaps), "interval") + " to swap, " +
                     format_count(drops, "interval") + " to recompute"});
  }

  // As in the published system, a value that came too late is fetched earlier in the next run.
  void feed_back() {
    for (int round = 0; round < kFeedbackRounds && !effort_.exhausted(); ++round) {
      const std::vector<TensorId> late = late_fetches();
      if (late.empty()) return;
      for (TensorId t : late) leads_[t] += kLeadStepInCopies;
      offer(chosen_);
    }
  }

  // What computes of the last plan waited for.
  std::vector<TensorId> late_fetches() const {
    std::vector<TensorId> late;
    const auto simulation = simulate(graph_, last_, {.link = problem_.link, .record = true});
    if (!simulation.ok() || simulation->stall == 0) return late;
    IdVector<TensorId, double> arrives(graph_.num_tensors(), 0);
    double clock = 0;
    for (std::size_t i = 0; i < last_.steps.size(); ++i) {
      const Step& step = last_.steps[i];
      const StepRecord& record = simulation->records[i];
      if (step.kind() == StepKind::kFetch) arrives[step.tensor()] = record.end;
      if (step.kind() == StepKind::kCompute) {
        for (TensorId t : graph_.reads(step.variant(graph_))) {
          if (arrives[t] > clock) late.push_back(t);
        }
      }
      if (step.kind() == StepKind::kCompute || step.kind() == StepKind::kRelease) {
        clock = record.end;
      }
    }
    return late;
  }

  const Problem problem_;
  const Graph& graph_;
  Effort& effort_;
  const IntervalSpace space_;
  IdVector<TensorId, double> leads_;  // of fetches, in durations of the copy
  BestCandidate best_;
  std::vector<Choice> choices_;  // in the order of the policy
  std::size_t chosen_ = 0;
  Plan last_;
};

}  // namespace

Result<Proposal> plan_capuchin(const Problem& problem, Effort& effort) {
  REGEN_TRY(expect_plain_accounting(problem, "capuchin"));
  if (problem.graph->num_ops() > kMostOps) {
    return limit_reached("more than " + format_grouped(kMostOps) + " ops");
  }
  REGEN_TRY(check_sequences_possible(*problem.graph));
  if (!problem.budget) return plan_keep_all(problem, effort);
  return Capuchin(problem, effort).run();
}

}  // namespace regen::search
