#include "regen/search/services/max_batch.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <set>

#include "regen/plan/explain.h"
#include "regen/search/build/accounting.h"
#include "regen/search/registry.h"

namespace regen::search {
namespace {

bool found(const Outcome& outcome) {
  return outcome.status == PlanStatus::kFeasible || outcome.status == PlanStatus::kOptimal;
}

class Search {
 public:
  Search(const Planner& planner, const MaxBatchProblem& problem)
      : planner_(planner), problem_(problem) {}

  Result<MaxBatchAnswer> run() {
    REGEN_ASSIGN(std::int64_t best, largest_fitting_index());
    MaxBatchAnswer answer{.planner = std::string(planner_.name)};
    if (problem_.batch_only) {
      if (best >= 0) answer.max_batch = batch_at(best);
      if (cut_off_) answer.limited_by = "search_limit";
      return answer;
    }
    REGEN_TRY(find_impossible(best));
    answer.upper_bound = impossible_ > 0 ? batch_at(impossible_ - 1) : 0;
    if (best >= 0) {
      REGEN_ASSIGN(const Outcome outcome, cheapest_at(batch_at(best)));
      answer.planner = outcome.planner;
      answer.max_batch = batch_at(best);
      answer.peak_bytes = outcome.simulation.peak_bytes;
      answer.cost = outcome.simulation.cost;
      answer.overhead = outcome.simulation.overhead;
    }
    if (best == last_index()) {
      answer.limited_by = "batch_limit";
    } else if (interrupted()) {
      answer.limited_by = "interrupted";
    } else {
      REGEN_ASSIGN(answer.limited_by, what_limits(batch_at(best + 1)));
    }
    return answer;
  }

 private:
  std::int64_t batch_at(std::int64_t index) const {
    return problem_.grid.start + index * problem_.grid.step;
  }
  std::int64_t last_index() const {
    return (problem_.largest - problem_.grid.start) / problem_.grid.step;
  }

  // -1 when nothing fits. Starts where division by the smallest batch's peak points, and gallops
  // from there, so that a linear model costs three builds.
  Result<std::int64_t> largest_fitting_index() {
    REGEN_ASSIGN(const std::int64_t guess, guess_index());
    REGEN_ASSIGN(const bool guess_fits, fits(guess));
    std::int64_t low = guess_fits ? guess : known_index();      // fits, or -1
    std::int64_t high = guess_fits ? last_index() + 1 : guess;  // does not fit, or beyond the end
    const std::int64_t near = problem_.batch_only ? problem_.stride : 1;
    for (std::int64_t stride = near; guess_fits && low + stride < high && !out_of_solves();
         stride *= 2) {
      REGEN_ASSIGN(const bool good, fits(low + stride));
      if (!good) {
        high = low + stride;
        break;
      }
      low += stride;
    }
    for (std::int64_t stride = near; !guess_fits && high - stride > low && !out_of_solves();
         stride *= 2) {
      REGEN_ASSIGN(const bool good, fits(high - stride));
      if (good) {
        low = high - stride;
        break;
      }
      high -= stride;
    }
    while (high - low > 1 && !out_of_solves()) {
      const std::int64_t middle = low + (high - low) / 2;
      REGEN_ASSIGN(const bool good, fits(middle));
      (good ? low : high) = middle;
    }
    cut_off_ = high - low > 1;
    return low;
  }

  std::int64_t known_index() const {
    if (!problem_.batch_only || problem_.known == 0) return -1;
    return (problem_.known - problem_.grid.start) / problem_.grid.step;
  }

  bool out_of_solves() const { return problem_.batch_only && solves_ >= problem_.most_solves; }

  // The smallest index that is proven impossible: at most the first that what every plan needs
  // rules out, and lower where the planner proves it. May raise `best` on the way.
  Status find_impossible(std::int64_t& best) {
    std::int64_t low = best;
    std::int64_t high = impossible_ = std::min(impossible_, last_index() + 1);
    for (std::int64_t stride = 1; low + stride < high; stride *= 2) {
      REGEN_ASSIGN(const bool possible, structurally_possible(low + stride));
      if (!possible) high = low + stride;
      if (possible) low += stride;
    }
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      REGEN_ASSIGN(const bool possible, structurally_possible(middle));
      (possible ? low : high) = middle;
    }
    impossible_ = high;
    low = best;
    // The proof need not be more precise than a fifth of a percent.
    while (planner_.integer_program && impossible_ - low > 1 && !interrupted() &&
           (impossible_ - 1 - best) * 500 > best) {
      const std::int64_t middle = low + (impossible_ - low) / 2;
      REGEN_ASSIGN(const bool good, fits(middle));  // lowers impossible_ itself
      if (good) best = middle;
      if (impossible_ > middle) low = middle;
    }
    return {};
  }

  Result<bool> structurally_possible(std::int64_t index) const {
    REGEN_ASSIGN(const Graph graph, problem_.graph_at(batch_at(index)));
    const auto bytes = budget(graph);
    return bytes && structural_bound(graph).bytes <= *bytes;
  }

  // Then nothing more is built or planned, and the best batch so far is the answer.
  bool interrupted() const { return Effort(problem_.limits).interrupted(); }

  bool cut_short(const Outcome& outcome) const {
    return outcome.seconds >= problem_.limits.seconds || outcome.work >= problem_.limits.work;
  }

  Result<std::int64_t> guess_index() {
    if (interrupted()) return std::int64_t{0};
    if (problem_.guess) {
      const std::int64_t index = (*problem_.guess - problem_.grid.start) / problem_.grid.step;
      return std::clamp(index, std::min(known_index() + 1, last_index()), last_index());
    }
    REGEN_ASSIGN(const Graph graph, problem_.graph_at(problem_.grid.start));
    Problem least = problem_for(graph);
    least.budget.reset();  // planners then look for the least memory
    // An integer program needs a budget; a heuristic's least memory is as good to begin with.
    const Planner& planner = planner_.integer_program ? own_planner("chen_greedy") : planner_;
    REGEN_ASSIGN(const Outcome outcome, solve(planner, least, problem_.limits));
    const Bytes available = budget(graph).value_or(0) - graph.fixed_bytes();
    // A planner that found nothing, or only bounds, still cannot beat what every plan needs.
    const Bytes peak =
        std::max<Bytes>(1, outcome.plan ? outcome.simulation.activation_peak_bytes
                                        : structural_bound(graph).bytes - graph.fixed_bytes());
    // In floating point: start * available may not fit an integer.
    const double batch = static_cast<double>(problem_.grid.start) *
                         (static_cast<double>(available) / static_cast<double>(peak));
    const double index = (batch - static_cast<double>(problem_.grid.start)) /
                         static_cast<double>(problem_.grid.step);
    return static_cast<std::int64_t>(std::clamp(index, 0.0, static_cast<double>(last_index())));
  }

  // Absent when the fixed bytes alone do not fit.
  std::optional<Bytes> budget(const Graph& graph) const {
    const Accounting* accounting = problem_.options.accounting;
    const bool twice = accounting != nullptr && accounting->counts_fixed_bytes_twice() &&
                       !planner_.integer_program;
    const Bytes bytes = problem_.memory - (twice ? graph.fixed_bytes() : 0);
    return bytes < 0 ? std::nullopt : std::optional(bytes);
  }

  Problem problem_for(const Graph& graph) const {
    Problem problem{.graph = &graph, .link = problem_.link, .options = problem_.options};
    problem.budget = budget(graph);
    if (problem_.compute_cap) problem.cost_cap = graph.base_cost() + forward_cost(graph);
    return problem;
  }

  Result<bool> fits(std::int64_t index) {
    if (interrupted()) return false;
    const std::int64_t batch = batch_at(index);
    REGEN_ASSIGN(const Graph graph, problem_.graph_at(batch));
    const Problem problem = problem_for(graph);
    if (!problem.budget) return false;
    ++solves_;
    REGEN_ASSIGN(Outcome outcome, solve_for_any(problem));
    const bool good = found(outcome);
    if (good) {
      outcome.plan.reset();
      outcomes_.insert_or_assign(batch, std::move(outcome));
      if (problem_.observer) problem_.observer(batch);
    } else if (outcome.status == PlanStatus::kInfeasible) {
      impossible_ = std::min(impossible_, index);
    } else if (cut_short(outcome)) {
      undecided_.insert(batch);
    }
    return good;
  }

  // Only whether anything fits is asked, so the first plan within the limits ends the search.
  Result<Outcome> solve_for_any(Problem problem) const {
    std::atomic<bool> enough{false};
    Limits limits = problem_.limits;
    limits.enough = &enough;
    problem.observer = [&](double, std::optional<double> incumbent, double) {
      if (incumbent && *incumbent <= problem.cost_cap.value_or(*incumbent)) enough = true;
    };
    REGEN_ASSIGN(Outcome outcome, solve(planner_, problem, limits));
    if (found(outcome) || !enough) return outcome;
    // The judge refused a plan that the planner took to be within the limits.
    problem.observer = {};
    return solve(planner_, problem, problem_.limits);
  }

  // What the answer costs is asked once, of the whole search.
  Result<Outcome> cheapest_at(std::int64_t batch) const {
    const Outcome& first = outcomes_.at(batch);
    if (interrupted()) return first;
    REGEN_ASSIGN(const Graph graph, problem_.graph_at(batch));
    REGEN_ASSIGN(Outcome outcome, solve(planner_, problem_for(graph), problem_.limits));
    return found(outcome) && outcome.simulation.cost <= first.simulation.cost ? outcome : first;
  }

  Result<std::string> what_limits(std::int64_t batch) {
    REGEN_ASSIGN(const Graph graph, problem_.graph_at(batch));
    Problem problem = problem_for(graph);
    if (!problem.budget || structural_bound(graph).bytes > *problem.budget) {
      return std::string("structural_bound");
    }
    if (undecided_.contains(batch)) return std::string("search_limit");
    problem.cost_cap.reset();
    REGEN_ASSIGN(const Outcome outcome, solve(planner_, problem, problem_.limits));
    if (interrupted()) return std::string("interrupted");
    return std::string(found(outcome) ? "compute_cap" : "memory");
  }

  const Planner& planner_;
  const MaxBatchProblem& problem_;
  // The smallest index that is known to be impossible for this planner.
  std::int64_t impossible_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t solves_ = 0;                   // that looked whether a batch fits
  bool cut_off_ = false;                      // by the number of solves, before the answer
  std::map<std::int64_t, Outcome> outcomes_;  // of the batches that fit, without their plans
  std::set<std::int64_t> undecided_;          // a limit came before an answer
};

}  // namespace

double forward_cost(const Graph& graph) {
  double sum = 0;
  for (OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::kForward) sum += graph.cost(graph.default_variant(op));
  }
  return sum;
}

Result<MaxBatchAnswer> max_batch(const Planner& planner, const MaxBatchProblem& problem) {
  if (problem.grid.start < 1 || problem.grid.step < 1 || problem.grid.start > problem.largest) {
    return bad_input("grid " + std::to_string(problem.grid.start) + ":" +
                     std::to_string(problem.grid.step) +
                     " is out of range, expected a start from 1 to " +
                     std::to_string(problem.largest) + " and a step of at least 1");
  }
  return Search(planner, problem).run();
}

}  // namespace regen::search
