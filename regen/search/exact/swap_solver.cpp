#include "regen/search/exact/swap_solver.h"

#include <algorithm>
#include <limits>
#include <string>

#include "regen/base/tolerance.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"
#include "regen/search/effort_fraction.h"
#include "regen/search/exact/step_search.h"
#include "regen/search/exact/transfer_model.h"
#include "regen/search/judge.h"
#include "regen/search/local/local_search.h"
#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostColumns = 300'000;  // of the relaxation
constexpr std::size_t kMostParts = 6'000'000;  // of step lists
constexpr std::int64_t kBytesPerPart = 250;    // with its place in the queue and the index
constexpr std::size_t kMaxOpsForStepSearchFirst =
    24;  // with so few, all step lists are searched first
// Of one run of the local search: a fixed number, so that the answer does not depend on the machine.
constexpr std::int64_t kSearchWork = 8'000'000;
constexpr int kAttempts = 3;  // to lower the budget step by step
// Of the effort that is left: the relaxation leaves some to use its solution.
constexpr double kRelaxationFraction = 0.5;

// Within the host memory that the search may take.
std::size_t most_parts(const Effort& effort) {
  return std::min(kMostParts, static_cast<std::size_t>(effort.limits().bytes / kBytesPerPart));
}

Problem without_cap(const Problem& problem) {
  Problem uncapped = problem;
  uncapped.cost_cap.reset();
  uncapped.observer = nullptr;
  return uncapped;
}

class SwapSolver {
 public:
  SwapSolver(const Problem& problem, Effort& effort)
      : problem_(problem),
        graph_(*problem.graph),
        effort_(effort),
        stages_(make_stage_problem(graph_, !problem.options.recompute_gradients)),
        uncapped_(without_cap(problem)),
        search_(uncapped_, effort),
        seed_(problem.options.seed),
        best_(problem),
        bound_(stages_.exact ? stages_.base_cost : 0) {}

  Proposal solve() {
    ask_others();
    const bool can_search = can_search_steps(problem_, stages_);
    if (!closed()) start_search();
    const bool few = can_search && stages_.num_ops <= kMaxOpsForStepSearchFirst;
    if (!closed() && few && !effort_.exhausted()) search_all_steps();
    if (!closed() && searches_itself()) lower_the_budget();
    if (!closed() && !effort_.exhausted()) relax();
    if (!closed() && searches_itself() && !effort_.exhausted()) improve(kSearchWork);
    if (!closed() && can_search && !few && !effort_.exhausted()) search_all_steps();
    while (!closed() && searches_itself() && effort_.limits().seconds < kInfinity && found() &&
           search_.best() && !effort_.exhausted()) {
      improve(kSearchWork);
    }
    return proposal();
  }

  Proposal round() {
    offer_plan(plan_keep_all(problem_, effort_));
    if (!closed()) relax();
    if (!closed() && !found()) {
      // Nothing to round, or nothing that could be repaired.
      search_.start(/*give_up=*/true);
      offer_search();
    }
    Proposal result = proposal();
    // Rounding proves nothing but its bound.
    if (!found()) result.plan.reset();
    return result;
  }

 private:
  // Where a plan is given, the caller has searched, and will go on from what is found here.
  bool searches_itself() const { return !starts_from_plan(problem_); }
  bool found() const { return best_.best() && within_limits(problem_, best_.best()->simulation); }
  double cost() const { return best_.best()->simulation.cost; }

  // Nothing better exists, or nothing better by the requested gap.
  bool closed() const {
    if (excluded_) return true;
    return found() && cost() * (1 - std::max(kSummationError, problem_.options.gap)) <= bound_;
  }

  // Plans of this cost and above are of no interest.
  double cutoff() const {
    const double best = found() ? cost() : kInfinity;
    return std::min(best * (1 - kSummationError),
                    problem_.cost_cap.value_or(kInfinity) * (1 + kSummationError));
  }

  // What a plan of interest may cost above the base.
  double most_extra() const {
    if (found()) return cost() - stages_.base_cost;
    // Every op again in every stage, and every value there and back each time.
    double most = stages_.base_cost;
    for (OpId op : graph_.ops()) most += stages_.rerun_cost[op];
    if (problem_.link.can_move()) {
      for (const Bytes bytes : stages_.bytes) {
        most +=
            static_cast<double>(bytes) * (1 / problem_.link.to_host + 1 / problem_.link.to_device);
      }
    }
    return most * static_cast<double>(stages_.num_ops + 1);
  }

  void report_progress() {
    if (!problem_.observer) return;
    problem_.observer(effort_.seconds(), found() ? std::optional(cost()) : std::nullopt, bound_);
  }

  void offer_search() {
    if (search_.best()) offer_plan(Proposal{.plan = search_.best_plan()});
    report_progress();
  }

  void offer_plan(Result<Proposal> proposal) {
    if (!proposal.ok() || !proposal->plan) return;
    auto simulation = simulate(graph_, *proposal->plan, {.link = problem_.link});
    if (simulation.ok()) best_.offer({std::move(*proposal->plan), *std::move(simulation), ""});
  }

  void raise_bound(double bound) {
    if (!stages_.exact || bound <= bound_) return;
    bound_ = found() ? std::min(bound, cost()) : bound;
    report_progress();
  }

  void ask_others() {
    Problem plain = problem_;
    plain.options.accounting = nullptr;
    plain.observer = {};
    Effort quick;
    if (starts_from_plan(problem_)) {
      offer_plan(Proposal{.plan = *problem_.start});
      return;
    }
    for (const auto planner : {plan_keep_all, plan_chen_greedy, plan_capuchin, plan_vdnn}) {
      if (closed()) return;
      offer_plan(planner(plain, quick));
      report_progress();
    }
  }

  // From the best of the others, with what it keeps on the device or free to move; without a plan that
  // was given also from starts of its own and from everything free to move.
  void start_search() {
    if (best_.best()) {
      const Plan known = best_.best()->plan;
      search_.start_from(known);
      offer_search();
      if (auto decisions = search_.model().read_plan(known)) {
        search_.start_moving(std::move(*decisions));
        offer_search();
      }
    }
    if (starts_from_plan(problem_)) return;
    if (!closed()) {
      search_.start_in_blocks();
      search_.start(/*give_up=*/true);
      search_.start_exactly(seed_);
      offer_search();
    }
    search_.start_moving(search_.model().keep_everything());
    offer_search();
  }

  void lower_the_budget() {
    for (int i = 0; i < kAttempts && !found() && !effort_.exhausted(); ++i) {
      search_.start_by_lowering(seed_++);
      offer_search();
    }
  }

  void improve(std::int64_t work) {
    search_.improve(seed_++, bound_, {.most = {.work = work}});
    offer_search();
  }

  void search_all_steps() {
    const double below = cutoff();
    const StepSearchAnswer answer =
        search_steps(problem_, stages_, below, most_parts(effort_), effort_);
    // With a joint limit the list may cost more than in the search.
    if (answer.plan) offer_plan(Proposal{.plan = answer.plan});
    if (!answer.plan && answer.bound >= below) {
      exclude_the_rest();
    } else {
      raise_bound(answer.bound);
    }
  }

  // Proven: nothing is cheaper than the best plan; without one, nothing fits.
  void exclude_the_rest() {
    if (found()) {
      raise_bound(cost());
    } else {
      excluded_ = stages_.exact;
    }
  }

  void offer_rounded(const TransferModel& model, const std::vector<double>& values) {
    for (int i = 1; i <= 9 && !closed() && !effort_.exhausted(); ++i) {
      search_.start_from(model.rounded(search_.model(), values, 0.1 * i));
      offer_search();
    }
  }

  void relax() {
    const std::size_t columns = TransferModel::count_columns(stages_);
    if (columns > kMostColumns || !can_relax(columns, effort_)) {
      note_ = "the relaxation has " + format_count(columns, "column") + ", too many to be solved";
      return;
    }
    TransferModel model(problem_, stages_, most_extra());
    Effort half(fraction_of(effort_, kRelaxationFraction));
    const TransferBound answer = model.relax(half);
    effort_.add(half.work());
    if (answer.status == ModelStatus::kInfeasible) {
      exclude_the_rest();
      return;
    }
    raise_bound(answer.bound);
    if (!answer.values.empty()) offer_rounded(model, answer.values);
  }

  Proposal proposal() {
    // The bound is about any movement.
    Proposal result{.status = PlanStatus::kUnknown,
                    .lower_bound = bound_,
                    .bound_kind = BoundKind::kOrder,
                    .note = note_};
    if (excluded_) {
      result.status = PlanStatus::kInfeasible;
      result.note = "no step list keeps the limits";
      return result;
    }
    if (!best_.best()) return result;
    const Candidate& best = *best_.best();
    result.plan = best.plan;
    if (!found()) return result;
    const bool proven = stages_.exact && cost() * (1 - kSummationError) <= bound_;
    result.status = proven ? PlanStatus::kOptimal : PlanStatus::kFeasible;
    if (!proven && effort_.exhausted() && result.note.empty()) {
      result.note = effort_.interrupted() ? "interrupted" : "a limit was reached";
    }
    return result;
  }

  const Problem& problem_;
  const Graph& graph_;
  Effort& effort_;
  StageProblem stages_;
  const Problem uncapped_;  // any cost is of interest to the local search
  LocalSearch search_;
  std::uint64_t seed_;
  BestCandidate best_;
  double bound_ = 0;
  bool excluded_ = false;  // proven: nothing fits
  std::string note_;
};

}  // namespace

Proposal solve_swaps(const Problem& problem, Effort& effort) {
  return SwapSolver(problem, effort).solve();
}

Proposal round_swaps(const Problem& problem, Effort& effort) {
  return SwapSolver(problem, effort).round();
}

}  // namespace regen::search
