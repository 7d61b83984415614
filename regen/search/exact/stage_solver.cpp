#include "regen/search/exact/stage_solver.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "regen/base/tolerance.h"
#include "regen/search/bounds/pending_gradient_bound.h"
#include "regen/search/exact/provenance_cuts.h"
#include "regen/search/exact/rerun_branching.h"
#include "regen/search/exact/stage_incumbent.h"
#include "regen/search/exact/stage_model.h"

namespace regen::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Work of the local search before and after the relaxation: fixed numbers, so that the answer does
// not depend on the machine.
constexpr std::int64_t kSearchWork = 8'000'000;
constexpr std::int64_t kDeepSearchWork = 50'000'000;
constexpr int kAttempts = 5;  // to lower the budget step by step
// A model with more columns is not built: its relaxation would take hours.
constexpr std::size_t kMostColumns = 400'000;
constexpr int kProvenanceRounds = 40;
// Relative to the bound: where it rises by less in five rounds, provenance cuts no longer help.
constexpr double kLeastRise = 1e-5;
// A branching is tried where one op accounts for at least this fraction of the gap.
constexpr double kLeastOpGapFraction = 0.5;
constexpr int kPartRounds = 8;
constexpr std::int64_t kPartWork = 300'000'000;
// A side that is not excluded limits the bound from then on: a branching must close at least this
// fraction of the gap.
constexpr double kLeastClosedGapFraction = 0.5;

// Rows, fixing and branching within the effort. Infeasible: nothing in it is below the cutoff.
ModelAnswer bound_model(StageModel& model, double cutoff, Effort& effort) {
  double bound = -kInfinity;
  for (int round = 0; round < kPartRounds; ++round) {
    ModelAnswer answer = model.linear().solve_relaxation(effort);
    bound = std::max(bound, answer.bound);
    if (bound >= cutoff) answer.status = ModelStatus::kInfeasible;
    if (answer.status != ModelStatus::kOptimal) {
      answer.bound = bound;
      return answer;
    }
    model.add_broken_memory_rows(answer.values);
    add_provenance_cuts(model, answer.values);
    model.linear().fix_by_reduced_costs(answer, cutoff);
  }
  ModelAnswer answer = model.linear().solve({.cutoff = cutoff}, effort);
  answer.bound = std::max(bound, answer.bound);
  return answer;
}

class StageSolver {
 public:
  StageSolver(const Problem& problem, Effort& effort)
      : problem_(problem),
        effort_(effort),
        stages_(make_stage_problem(*problem.graph, !problem.options.recompute_gradients)),
        budget_(*problem.budget - problem.graph->fixed_bytes()),
        step_(common_cost(stages_)),
        incumbent_(problem, effort),
        bound_(stages_.base_cost) {}

  StageAnswer solve(const std::vector<std::vector<OpId>>& starts) {
    search(starts);
    if (!done()) make_model();
    if (!model_ && !done() && has_incumbent() && searches_itself())
      incumbent_.improve(bound_, kDeepSearchWork);
    if (model_ && !done()) {
      relax(kProvenanceRounds);
      search_deeper();
      split();
      branch();
    }
    StageAnswer answer;
    if (has_incumbent()) {
      answer.sequence = incumbent_.sequence();
      answer.cost = incumbent();
    }
    if (within_cap()) {
      const bool proven = bound_ >= incumbent() * (1 - kSameCost);
      answer.status = proven ? PlanStatus::kOptimal : PlanStatus::kFeasible;
    } else if (closed() || excluded_) {
      answer.status = PlanStatus::kInfeasible;
    }
    answer.bound = bound_;
    if (effort_.interrupted()) answer.note = "interrupted";
    if (!model_ && !done()) {
      answer.note = "too large for the integer model: searched only";
    }
    return answer;
  }

 private:
  // A part of the model, and a lower bound on the cost of its schedules.
  struct OpenPart {
    StageModel model;
    double bound = 0;
  };

  // Where a plan is given, the caller has searched, and will go on from what is found here.
  bool searches_itself() const { return problem_.start == nullptr; }
  bool has_incumbent() const { return incumbent_.found(); }
  double incumbent() const { return incumbent_.cost(); }
  bool within_cap() const {
    return has_incumbent() && (!problem_.cost_cap || incumbent() <= *problem_.cost_cap);
  }
  double model_cutoff() const { return model_->to_model(cutoff() - stages_.base_cost); }
  double cost_of(double objective) const {
    return stages_.base_cost + model_->from_model(objective);
  }
  bool done() const { return closed() || excluded_ || effort_.exhausted(); }

  // Only schedules below this cost are of interest: the incumbent's cost minus the least possible
  // gain and the requested gap, at most the cap.
  double cutoff() const {
    if (within_cap()) {
      const double least_gain = step_ > 0 ? step_ * (1 - kStepError) : kSameCost * incumbent();
      return incumbent() - std::max(least_gain, problem_.options.gap * incumbent());
    }
    return problem_.cost_cap ? *problem_.cost_cap * (1 + kSameCost) : kInfinity;
  }

  bool closed() const { return bound_ >= cutoff(); }

  void report_progress() const {
    if (!problem_.observer) return;
    problem_.observer(effort_.seconds(),
                      has_incumbent() ? std::optional(incumbent()) : std::nullopt, bound_);
  }

  void raise_bound(double bound) {
    // Schedules above the cutoff may have been removed from the model; a bound beyond it only says
    // that nothing is left below.
    const double most = problem_.options.gap > 0 || !within_cap() ? cutoff() : incumbent();
    // Costs are multiples of the step, so a bound between two of them means the higher one.
    if (step_ > 0) bound = std::ceil(bound / step_ - kStepError) * step_;
    bound = std::min(bound, most);
    for (const OpenPart& part : set_aside_) bound = std::min(bound, part.bound);
    if (bound <= bound_) return;
    bound_ = bound;
    report_progress();
  }

  void exclude_the_rest() {
    excluded_ = set_aside_.empty();
    // Without any schedule there is no number to raise the bound to.
    if (!std::isinf(cutoff())) raise_bound(kInfinity);
  }

  void offer(const std::optional<std::vector<OpId>>& sequence) {
    if (!sequence) return;
    const double before = has_incumbent() ? incumbent() : kInfinity;
    incumbent_.offer(*sequence);
    if (has_incumbent() && incumbent() < before) report_progress();
  }

  void search(const std::vector<std::vector<OpId>>& starts) {
    // With a plan to start from, others have been tried already.
    if (searches_itself()) incumbent_.start();
    for (const auto& sequence : starts) {
      if (!closed()) incumbent_.offer(sequence);
    }
    if (!has_incumbent() && pending_gradient_bound(stages_, effort_) > budget_) exclude_the_rest();
    // Repairs are random: another attempt may succeed where the first ones did not.
    for (int i = 0; i < kAttempts && !has_incumbent() && !done(); ++i) {
      incumbent_.start_by_lowering(problem_.options.seed + static_cast<std::uint64_t>(i));
    }
    report_progress();
    if (!done() && has_incumbent() && searches_itself()) incumbent_.improve(bound_, kSearchWork);
    report_progress();
  }

  // Useful only where the relaxation leaves a gap; a better schedule then also makes the model
  // smaller.
  void search_deeper() {
    if (done() || !has_incumbent() || !searches_itself()) return;
    const double before = incumbent();
    incumbent_.improve(bound_, kDeepSearchWork);
    report_progress();
    if (incumbent() < before && !done()) {
      make_model();
      relax(kProvenanceRounds);
    }
  }

  // Builds the model without re-runs of ops that cost so much that one re-run exceeds the incumbent.
  void make_model() {
    relaxed_.clear();
    StageProblem stages = without_expensive_reruns(stages_, cutoff() - stages_.base_cost);
    const std::size_t columns = StageModel::count_columns(stages);
    if (columns <= kMostColumns && can_relax(columns, effort_)) {
      model_.emplace(std::move(stages), budget_);
    }
  }

  // Adds rows that the relaxation violates; false when there are none that help.
  bool strengthen(const ModelAnswer& relaxation, bool origins) {
    int added = model_->add_broken_memory_rows(relaxation.values);
    if (origins) added += add_provenance_cuts(*model_, relaxation.values);
    added += model_->linear().fix_by_reduced_costs(relaxation, model_cutoff());
    return added > 0;
  }

  void relax(int provenance_rounds) {
    double recent = bound_;
    for (int round = 0; !done(); ++round) {
      const ModelAnswer answer = model_->linear().solve_relaxation(effort_);
      if (answer.status == ModelStatus::kInfeasible) {
        exclude_the_rest();
        return;
      }
      raise_bound(cost_of(answer.bound));
      if (answer.status != ModelStatus::kOptimal || done()) return;
      relaxed_ = answer.values;
      if (round % 10 == 0) {
        for (const double threshold : {0.3, 0.5, 0.7}) {
          offer(model_->rounded(answer.values, threshold));
        }
      }
      const double before = recent;
      if (round % 5 == 4) recent = bound_;
      const bool moving = bound_ > before + kLeastRise * std::abs(bound_);
      if (!strengthen(answer, round < provenance_rounds && (moving || round < 10))) return;
    }
  }

  // Bounds the side of a split that the best schedule is not on, with limited work. False if that was
  // not worth it: the model is not split.
  bool set_aside(const RerunBranching& split) {
    OpenPart part{*model_, bound_};
    split.keep_other_side(part.model);
    Effort effort({.seconds = effort_.seconds_left(),
                   .work = std::min(kPartWork, effort_.work_left()),
                   .interrupt = effort_.limits().interrupt,
                   .enough = effort_.limits().enough});
    const ModelAnswer answer = bound_model(part.model, model_cutoff(), effort);
    effort_.add(effort.work());
    if (!answer.values.empty()) offer(part.model.rounded(answer.values, 0.5));
    if (answer.status != ModelStatus::kInfeasible) {
      part.bound = std::max(part.bound, cost_of(answer.bound));
      if (part.bound < bound_ + kLeastClosedGapFraction * (cutoff() - bound_)) return false;
      set_aside_.push_back(std::move(part));
    }
    return true;
  }

  // Decides the number of re-runs first, which the relaxation cannot evade by moving them between
  // stages.
  void split() {
    if (done() || !has_incumbent() || relaxed_.empty()) return;
    const auto splits = find_rerun_branchings(*model_, relaxed_, incumbent_.sequence(),
                                              kLeastOpGapFraction * (incumbent() - bound_));
    for (const RerunBranching& split : splits) {
      if (done() || !set_aside(split)) return;
      split.keep_best_side(*model_);
      relax(kPartRounds);
    }
  }

  // True if nothing below the cutoff is left in the model.
  bool branch_here() {
    while (!done()) {
      MipOptions options{.cutoff = model_cutoff(),
                         .absolute_gap = model_->to_model(step_ * (1 - kStepError))};
      options.on_progress = [this](double, double bound) { raise_bound(cost_of(bound)); };
      const ModelAnswer answer = model_->linear().solve(options, effort_);
      if (answer.status == ModelStatus::kInfeasible) {
        exclude_the_rest();
        return true;
      }
      raise_bound(cost_of(answer.bound));
      if (answer.values.empty()) return false;
      offer(model_->rounded(answer.values, 0.5));
      // A solution that violates no row is a schedule; any other shows which rows are missing.
      if (done() || model_->add_broken_memory_rows(answer.values) == 0) {
        return cost_of(answer.bound) >= cutoff();
      }
    }
    return false;
  }

  void branch() {
    while (branch_here() && !done() && !set_aside_.empty()) {
      model_ = std::move(set_aside_.back().model);
      set_aside_.pop_back();
    }
  }

  const Problem& problem_;
  Effort& effort_;
  StageProblem stages_;
  Bytes budget_;
  double step_;  // costs are multiples of it; 0: no such number
  StageIncumbent incumbent_;
  std::optional<StageModel> model_;
  std::vector<double> relaxed_;      // the last solution of the relaxation
  std::vector<OpenPart> set_aside_;  // parts that were split off and are not excluded
  double bound_;
  bool excluded_ = false;  // proven: nothing below the cutoff
};

}  // namespace

StageAnswer solve_stages(const Problem& problem, const std::vector<std::vector<OpId>>& starts,
                         Effort& effort) {
  return StageSolver(problem, effort).solve(starts);
}

}  // namespace regen::search
