// Capuchin's policy: from the times of one run that keeps everything, swap the values that are
// free longest until the link is full, then recompute those that save most bytes per second of
// recomputation; then move prefetches ahead where the run still waits for them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "regen/search/build/accounting.h"
#include "regen/search/build/sequence.h"
#include "regen/search/local/swap_schedule.h"
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

// A reuse interval in which a value could be on the host.
struct Swap {
  StageReuse interval;
  double freed_from = 0;  // its last use before ends
  double wanted_at = 0;   // its next use begins
  double out = 0;         // durations of the copies
  double in = 0;

  double free_time() const { return wanted_at - in - (freed_from + out); }
};

class Capuchin {
 public:
  Capuchin(const Problem& problem, Effort& effort)
      : problem_(problem),
        graph_(*problem.graph),
        effort_(effort),
        stages_(make_stage_problem(graph_, /*forward_only=*/true)),
        intervals_(find_stage_reuses(stages_)),
        evaluator_(problem, stages_),
        best_(problem) {
    std::erase_if(intervals_,
                  [&](const StageReuse& interval) { return stages_.bytes[interval.value] == 0; });
  }

  Result<Proposal> run() && {
    REGEN_TRY(check_sequences_possible(graph_));
    offer(0);
    if (!fits(best_.best())) {
      choose_swaps();
      choose_drops();
      offer(decisions_needed());
      feed_back();
    }
    return std::move(best_).proposal("nothing was tried");
  }

 private:
  struct Decision {
    StageReuse interval;
    IntervalDecision way = IntervalDecision::kMove;
  };

  // In the order of free times, while the copies of all that is chosen find a place on the link.
  void choose_swaps() {
    if (!problem_.link.can_move()) return;
    std::vector<double> start{0};
    for (OpId op : graph_.ops()) start.push_back(start.back() + stages_.first_cost[op]);
    std::vector<Swap> swaps;
    for (const StageReuse& interval : intervals_) {
      const auto bytes = static_cast<double>(stages_.bytes[interval.value]);
      swaps.push_back({interval, start[interval.first], start[interval.last],
                       bytes / problem_.link.to_host, bytes / problem_.link.to_device});
    }
    std::ranges::stable_sort(swaps, std::ranges::greater{}, &Swap::free_time);
    IdVector<ValueId, char> moves(stages_.num_values, 0);
    Bytes host_bytes = 0;
    std::vector<Swap> chosen;
    for (const Swap& swap : swaps) {
      if (swap.free_time() < 0 || effort_.exhausted()) break;
      const Bytes more = moves[swap.interval.value] ? 0 : stages_.bytes[swap.interval.value];
      if (host_bytes + more > problem_.host_budget.value_or(kMaxBytes)) continue;
      chosen.push_back(swap);
      if (!link_has_room(chosen)) {
        chosen.pop_back();
        continue;
      }
      host_bytes += more;
      moves[swap.interval.value] = 1;
      decisions_.push_back({swap.interval, IntervalDecision::kMove});
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
    SwapSchedule schedule = schedule_of(decisions_.size());
    std::priority_queue<std::pair<double, std::size_t>> queue;
    for (std::size_t i = 0; i < intervals_.size(); ++i) {
      const bool open = way_of(schedule, intervals_[i]) == IntervalDecision::kKeep;
      if (open) queue.emplace(worth_of_drop(schedule.keep, intervals_[i]), i);
    }
    while (!queue.empty() && queue.top().first > 0 && !effort_.exhausted()) {
      const std::size_t i = queue.top().second;
      queue.pop();
      const double worth = worth_of_drop(schedule.keep, intervals_[i]);
      if (!queue.empty() && queue.top().first > worth) {
        queue.emplace(worth, i);
        continue;
      }
      if (worth == 0) return;
      set_way(schedule, intervals_[i], IntervalDecision::kDrop);
      decisions_.push_back({intervals_[i], IntervalDecision::kDrop});
    }
  }

  // Bytes per cost; 0 if the value cannot be made again.
  double worth_of_drop(const KeepMatrix& keep, const StageReuse& interval) {
    const double cost = cost_of_drop(keep, interval);
    const auto bytes = static_cast<double>(stages_.bytes[interval.value]);
    return std::isinf(cost) ? 0 : bytes / std::max(cost, std::numeric_limits<double>::min());
  }

  // Of making the value again where the interval ends.
  double cost_of_drop(const KeepMatrix& keep, const StageReuse& interval) {
    double cost = 0;
    std::vector<OpId> todo{OpId(stages_.producer[interval.value])};
    std::vector<OpId> seen;
    while (!todo.empty()) {
      const OpId op = todo.back();
      todo.pop_back();
      if (std::ranges::find(seen, op) != seen.end()) continue;
      if (stages_.rerun_until[op] < interval.last || seen.size() > kMaxChainOps) {
        return std::numeric_limits<double>::infinity();
      }
      seen.push_back(op);
      cost += stages_.rerun_cost[op];
      for (ValueId v : stages_.reads[op]) {
        if (!keep.get(interval.last, v)) todo.push_back(OpId(stages_.producer[v]));
      }
      effort_.add(1);
    }
    return cost;
  }

  SwapSchedule schedule_of(std::size_t decisions) const {
    SwapSchedule schedule = uniform_schedule(stages_, {}, IntervalDecision::kKeep);
    for (std::size_t i = 0; i < decisions; ++i) {
      set_way(schedule, decisions_[i].interval, decisions_[i].way);
    }
    return schedule;
  }

  bool fits(const std::optional<Candidate>& candidate) const {
    return candidate && problem_.budget && candidate->simulation.peak_bytes <= *problem_.budget;
  }

  // The least number that keeps the budget; all without one, or if not even they do.
  std::size_t decisions_needed() {
    std::size_t enough = decisions_.size();
    if (!problem_.budget || !fits(evaluator_.evaluate(schedule_of(enough)))) return enough;
    std::size_t too_few = 0;
    while (enough - too_few > 1 && !effort_.exhausted()) {
      const std::size_t middle = too_few + (enough - too_few) / 2;
      (fits(evaluator_.evaluate(schedule_of(middle))) ? enough : too_few) = middle;
      effort_.add(static_cast<std::int64_t>(evaluator_.num_steps()));
    }
    return enough;
  }

  void offer(std::size_t decisions) {
    chosen_ = decisions;
    auto candidate = evaluator_.evaluate(schedule_of(decisions));
    effort_.add(static_cast<std::int64_t>(evaluator_.num_steps()));
    if (!candidate) return;
    std::size_t swaps = 0;
    for (std::size_t i = 0; i < decisions; ++i)
      swaps += decisions_[i].way == IntervalDecision::kMove;
    candidate->note = format_count(swaps, "interval") + " to swap, " +
                      format_count(decisions - swaps, "interval") + " to recompute";
    last_ = candidate->plan;
    best_.offer(*std::move(candidate));
  }

  // As in the published system, a value that came too late is fetched earlier in the next run.
  void feed_back() {
    for (int round = 0; round < kFeedbackRounds && !effort_.exhausted(); ++round) {
      const std::vector<TensorId> late = late_fetches();
      if (late.empty()) return;
      for (TensorId t : late) evaluator_.set_lead(t, evaluator_.lead(t) + kLeadStepInCopies);
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

  const Problem& problem_;
  const Graph& graph_;
  Effort& effort_;
  const StageProblem stages_;
  std::vector<StageReuse> intervals_;
  SwapEvaluator evaluator_;
  BestCandidate best_;
  std::vector<Decision> decisions_;  // in the order of the policy
  std::size_t chosen_ = 0;
  Plan last_;
};

}  // namespace

Result<Proposal> plan_capuchin(const Problem& problem, Effort& effort) {
  REGEN_TRY(expect_plain_accounting(problem, "capuchin"));
  if (problem.graph->num_ops() > kMostOps) {
    return limit_reached("more than " + format_grouped(kMostOps) + " ops");
  }
  return Capuchin(problem, effort).run();
}

}  // namespace regen::search
