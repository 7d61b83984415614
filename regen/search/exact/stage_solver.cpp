#include "regen/search/exact/stage_solver.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "regen/search/exact/provenance_cuts.h"
#include "regen/search/bounds/pending_gradient_bound.h"

namespace regen {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The search ends after this many attempts without success, or this much work: fixed numbers, so
// that the answer does not depend on the machine.
constexpr int kIdleRounds = 300;
constexpr std::int64_t kSearchWork = 60'000'000;
constexpr int kDeepIdleRounds = 3000;
constexpr std::int64_t kDeepSearchWork = 400'000'000;
constexpr int kAttempts = 20;
// A program with more columns is not even built: its relaxation would take hours.
constexpr std::size_t kMostColumns = 400'000;
constexpr int kOriginRounds = 40;
// A split is tried where one op makes this much of the gap.
constexpr double kShareOfGap = 0.5;
constexpr int kPartRounds = 8;
constexpr std::int64_t kPartWork = 300'000'000;
// A side that is not excluded limits the bound from then on: this much of the gap must be closed.
constexpr double kLeastGain = 0.5;

// Rows, fixing and branching within the effort. Infeasible: nothing in it is below the cutoff.
ProgramAnswer bound_program(FrontierProgram& program, double cutoff, Effort& effort) {
  double bound = -kInfinity;
  for (int round = 0; round < kPartRounds; ++round) {
    ProgramAnswer answer = program.program().solve_relaxation(effort);
    bound = std::max(bound, answer.bound);
    if (bound >= cutoff) answer.status = ProgramStatus::kInfeasible;
    if (answer.status != ProgramStatus::kOptimal) {
      answer.bound = bound;
      return answer;
    }
    program.add_broken_memory_rows(answer.values);
    add_origin_rows(program, answer.values);
    program.program().fix_by_reduced_costs(answer, cutoff);
  }
  ProgramAnswer answer = program.program().solve({.cutoff = cutoff}, effort);
  answer.bound = std::max(bound, answer.bound);
  return answer;
}

}  // namespace

FrontierSolver::FrontierSolver(const Problem& problem, Effort& effort)
    : problem_(problem),
      effort_(effort),
      frontier_(make_frontier(*problem.graph, !problem.options.recompute_gradients)),
      budget_(*problem.budget - problem.graph->fixed_bytes()),
      step_(common_cost(frontier_)),
      search_(frontier_, budget_, problem.options.seed, effort),
      bound_(frontier_.base_cost) {}

double FrontierSolver::cutoff() const {
  if (within_cap()) {
    const double least_gain = step_ > 0 ? step_ * (1 - 1e-6) : 1e-9 * incumbent();
    return incumbent() - std::max(least_gain, problem_.options.gap * incumbent());
  }
  return problem_.cost_cap ? *problem_.cost_cap * (1 + 1e-9) : kInfinity;
}

bool FrontierSolver::closed() const {
  return bound_ >= cutoff();
}

void FrontierSolver::tell() const {
  if (!problem_.observer) return;
  problem_.observer(effort_.seconds(), has_incumbent() ? std::optional(incumbent()) : std::nullopt,
                    bound_);
}

void FrontierSolver::raise_bound(double bound) {
  // Schedules above the cutoff may have been removed from the program; a bound beyond it only says
  // that nothing is left below.
  const double most = problem_.options.gap > 0 || !within_cap() ? cutoff() : incumbent();
  // Costs are multiples of the step, so a bound between two of them means the higher one.
  if (step_ > 0) bound = std::ceil(bound / step_ - 1e-6) * step_;
  bound = std::min(bound, most);
  for (const OpenPart& part : set_aside_) bound = std::min(bound, part.bound);
  if (bound <= bound_) return;
  bound_ = bound;
  tell();
}

void FrontierSolver::exclude_the_rest() {
  excluded_ = set_aside_.empty();
  // Without any schedule there is no number to raise the bound to.
  if (!std::isinf(cutoff())) raise_bound(kInfinity);
}

void FrontierSolver::offer(const KeepMatrix& keep) {
  const double before = has_incumbent() ? incumbent() : kInfinity;
  search_.add_start(keep);
  if (has_incumbent() && incumbent() < before) tell();
}

void FrontierSolver::search(const std::vector<std::vector<OpId>>& starts) {
  search_.add_start(keep_everything(frontier_));
  for (const auto& sequence : starts) {
    if (!closed()) search_.add_start(keep_of_sequence(frontier_, sequence));
  }
  if (!has_incumbent() && waiting_bound(frontier_, effort_) > budget_) exclude_the_rest();
  // Repairs draw lots: another attempt may arrive where the first ones did not.
  for (int i = 0; i < kAttempts && !has_incumbent() && !done(); ++i) {
    search_.descend(keep_everything(frontier_));
  }
  tell();
  if (!done()) search_.run(kIdleRounds, kSearchWork, bound_, [this](double) { tell(); });
}

// Worth its time only where the relaxation leaves a gap; a better schedule then makes the program
// smaller too.
void FrontierSolver::search_deeper() {
  if (done() || !has_incumbent()) return;
  const double before = incumbent();
  search_.run(kDeepIdleRounds, kDeepSearchWork, bound_, [this](double) { tell(); });
  if (incumbent() < before && !done()) {
    make_program();
    relax(kOriginRounds);
  }
}

// Ops so dear that one re-run is worse than what we have are out of it.
void FrontierSolver::make_program() {
  relaxed_.clear();
  Frontier frontier = without_dear_reruns(frontier_, cutoff() - frontier_.base_cost);
  if (FrontierProgram::count_columns(frontier) <= kMostColumns) {
    program_.emplace(std::move(frontier), budget_);
  }
}

// Adds rows that the relaxation breaks; false when there are none that help.
bool FrontierSolver::strengthen(const ProgramAnswer& relaxation, bool origins) {
  int added = program_->add_broken_memory_rows(relaxation.values);
  if (origins) added += add_origin_rows(*program_, relaxation.values);
  added += program_->program().fix_by_reduced_costs(relaxation, program_cutoff());
  return added > 0;
}

void FrontierSolver::relax(int origin_rounds) {
  double recent = bound_;
  for (int round = 0; !done(); ++round) {
    const ProgramAnswer answer = program_->program().solve_relaxation(effort_);
    if (answer.status == ProgramStatus::kInfeasible) {
      exclude_the_rest();
      return;
    }
    raise_bound(cost_of(answer.bound));
    if (answer.status != ProgramStatus::kOptimal || done()) return;
    relaxed_ = answer.values;
    if (round % 10 == 0) {
      for (const double threshold : {0.3, 0.5, 0.7}) {
        offer(program_->rounded(answer.values, threshold));
      }
    }
    const double before = recent;
    if (round % 5 == 4) recent = bound_;
    const bool moving = bound_ > before + 1e-5 * std::abs(bound_);
    if (!strengthen(answer, round < origin_rounds && (moving || round < 10))) return;
  }
}

// Bounds the side of a split that the best schedule is not on, with limited work. False if that was
// not worth it: the program stays whole.
bool FrontierSolver::set_aside(const CountSplit& split) {
  OpenPart part{*program_, bound_};
  split.keep_other_side(part.program);
  Effort effort({.seconds = effort_.seconds_left(),
                 .work = std::min(kPartWork, effort_.work_left()),
                 .interrupt = effort_.limits().interrupt,
                 .enough = effort_.limits().enough});
  const ProgramAnswer answer = bound_program(part.program, program_cutoff(), effort);
  effort_.add(effort.work());
  if (!answer.values.empty()) offer(part.program.rounded(answer.values, 0.5));
  if (answer.status != ProgramStatus::kInfeasible) {
    part.bound = std::max(part.bound, cost_of(answer.bound));
    if (part.bound < bound_ + kLeastGain * (cutoff() - bound_)) return false;
    set_aside_.push_back(std::move(part));
  }
  return true;
}

// What the relaxation evades by moving second runs from stage to stage is decided first.
void FrontierSolver::split() {
  if (done() || !has_incumbent() || relaxed_.empty()) return;
  const auto splits = find_count_splits(*program_, relaxed_, search_.best_sequence(),
                                        kShareOfGap * (incumbent() - bound_));
  for (const CountSplit& split : splits) {
    if (done() || !set_aside(split)) return;
    split.keep_best_side(*program_);
    relax(kPartRounds);
  }
}

// True if nothing below the cutoff is left in the program.
bool FrontierSolver::branch_here() {
  while (!done()) {
    MipOptions options{.cutoff = program_cutoff(),
                       .absolute_gap = program_->to_program(step_ * (1 - 1e-6))};
    options.on_progress = [this](double, double bound) { raise_bound(cost_of(bound)); };
    const ProgramAnswer answer = program_->program().solve(options, effort_);
    if (answer.status == ProgramStatus::kInfeasible) {
      exclude_the_rest();
      return true;
    }
    raise_bound(cost_of(answer.bound));
    if (answer.values.empty()) return false;
    offer(program_->rounded(answer.values, 0.5));
    // A solution that breaks no row is a schedule; one that does shows which rows are missing.
    if (done() || program_->add_broken_memory_rows(answer.values) == 0) {
      return cost_of(answer.bound) >= cutoff();
    }
  }
  return false;
}

void FrontierSolver::branch() {
  while (branch_here() && !done() && !set_aside_.empty()) {
    program_ = std::move(set_aside_.back().program);
    set_aside_.pop_back();
  }
}

FrontierAnswer FrontierSolver::solve(const std::vector<std::vector<OpId>>& starts) {
  search(starts);
  if (!done()) make_program();
  if (program_ && !done()) {
    relax(kOriginRounds);
    search_deeper();
    split();
    branch();
  }
  FrontierAnswer answer;
  if (has_incumbent()) {
    answer.sequence = search_.best_sequence();
    answer.cost = incumbent();
  }
  if (within_cap()) {
    const bool proven = bound_ >= incumbent() * (1 - 1e-9);
    answer.status = proven ? PlanStatus::kOptimal : PlanStatus::kFeasible;
  } else if (closed() || excluded_) {
    answer.status = PlanStatus::kInfeasible;
  }
  answer.bound = bound_;
  if (effort_.interrupted()) answer.note = "interrupted";
  if (!program_ && !done()) {
    answer.note = "too large for the integer program: searched only";
  }
  return answer;
}

}  // namespace regen
