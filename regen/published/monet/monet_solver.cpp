#include "regen/published/monet/monet_solver.h"

#include <algorithm>
#include <cmath>

#include "regen/base/parallel.h"
#include "regen/published/monet/monet_pool.h"
#include "regen/published/monet/monet_relaxation.h"

namespace regen::published {
namespace {

// Beyond this many pairs of stage and node the relaxation does not fit into a reasonable time.
constexpr std::size_t kMaxRelaxedPairs = 40'000;
constexpr int kMostRounds = 4;  // without a limit of time; a round is a start, or some pairs mixed
constexpr std::int64_t kQuickWork = 20'000;
// Up to this many pairs the integer model is solved at once, without annealing.
constexpr std::size_t kMaxPairsForIntegerModel = 2'500;
constexpr Bytes kNoLimit = Bytes{1} << 50;
// The fraction of the time in which the first schedules are looked for, before branching begins.
constexpr double kFirstFraction = 0.35;
// Of what is left then, for more starts and for mixing the first.
constexpr double kSecondFraction = 0.6;

class Solver {
 public:
  Solver(const MonetQuestion& question, MonetModel model, Effort& effort)
      : question_(question),
        model_(std::move(model)),
        effort_(effort),
        schedules_(model_, question.seed),
        relaxable_(model_.num_nodes() * model_.num_stages() <= kMaxRelaxedPairs) {}

  Result<MonetAnswer> run();

 private:
  Limits share(double part, double of_work) const;
  void side_by_side(double part, const std::function<void(Effort&)>& search,
                    const std::function<void(Effort&)>& prove);
  void relax(Effort& effort);
  void branch(Effort& effort);
  void mix(MonetPool& pool, int rounds, Effort& effort) const;
  void prove();
  void search();
  Result<MonetAnswer> answer() const;
  bool done() const {
    if (infeasible_) return true;
    const auto& best = schedules_.best();
    if (!best) return false;
    const double room = std::max(question_.gap * static_cast<double>(best->ticks), 1.0);
    return static_cast<double>(best->ticks) - bound_ < room;
  }
  void report_progress() const {
    if (!question_.on_progress) return;
    std::optional<double> best;
    if (schedules_.best()) best = static_cast<double>(schedules_.best()->ticks);
    question_.on_progress(best, bound_);
  }
  double trivial_bound() const;
  MonetSolution solution_of(const MonetStorage& storage) const;

  const MonetQuestion& question_;
  MonetModel model_;
  Effort& effort_;
  MonetPool schedules_;
  bool relaxable_;
  std::optional<MonetRelaxation> relaxation_;
  std::optional<MonetStorage> branched_;  // what branch-and-bound found
  double bound_ = 0;
  bool infeasible_ = false;
  bool proven_ = false;
  Effort* searching_ = nullptr;  // the search beside a proof
};

// Every op once, in its cheapest way.
double Solver::trivial_bound() const {
  Ticks sum = 0;
  for (const MonetStage& stage : model_.stages) sum += stage.least_ticks;
  for (const MonetForward& node : model_.nodes) {
    if (node.parent) continue;
    sum += node.first_ticks + std::min<Ticks>(node.in_place_ticks, 0);
    if (node.conv) sum += node.first_algorithms.back().ticks;
  }
  return static_cast<double>(sum);
}

Limits Solver::share(double part, double of_work) const {
  Limits limits = effort_.limits();
  if (std::isfinite(limits.seconds)) limits.seconds = std::max(0.0, effort_.seconds_left() * part);
  if (limits.work < std::numeric_limits<std::int64_t>::max()) {
    limits.work =
        static_cast<std::int64_t>(static_cast<double>(effort_.work_left()) * part * of_work);
  }
  return limits;
}

// Both get the same time and half of the work; a finished proof ends the search. Where work is
// counted, one follows the other: when a proof would end a search beside it is chance, and the same
// work has to give the same plan.
void Solver::side_by_side(double part, const std::function<void(Effort&)>& search,
                          const std::function<void(Effort&)>& prove) {
  Effort searching(share(part, 0.5)), proving(share(part, 0.5));
  searching_ = &searching;
  if (effort_.limits().work == Limits{}.work) {
    parallel_for(2, 2, [&](std::size_t i) { i == 0 ? search(searching) : prove(proving); });
  } else {
    prove(proving);
    search(searching);
  }
  searching_ = nullptr;
  effort_.add(searching.work() + proving.work());
  if (schedules_.best() || !relaxation_) report_progress();
}

void Solver::relax(Effort& effort) {
  if (!relaxable_) return;
  relaxation_.emplace(model_);
  relaxation_->tighten(effort);
  relaxation_->add_all_memory_rows();
  bound_ = std::max(bound_, relaxation_->bound());
  if (relaxation_->infeasible()) {
    infeasible_ = true;
    prove();
  }
}

// What is proven need not be searched for.
void Solver::prove() {
  proven_ = true;
  if (searching_ != nullptr) searching_->cancel();
}

void Solver::branch(Effort& effort) {
  if (!relaxation_ || !relaxation_->has_values()) return;
  const auto& best = schedules_.best();
  search::MipOptions options;
  if (best) {
    // Only a better schedule is wanted, by at least one tick.
    options.cutoff = static_cast<double>(best->ticks) - 0.5;
    options.fixed = relaxation_->fixed_below(options.cutoff);
    options.absolute_gap = question_.gap * static_cast<double>(best->ticks);
  }
  const search::ModelAnswer answer = relaxation_->program().solve(options, effort);
  if (!answer.values.empty()) branched_ = relaxation_->storage_of(answer.values, 0.5);
  if (answer.status == search::ModelStatus::kInfeasible) {
    infeasible_ = !best;
    if (best) bound_ = static_cast<double>(best->ticks);
  } else if (answer.status != search::ModelStatus::kFailed && std::isfinite(answer.bound)) {
    // The solver's tolerances may let it claim a little more than it has proven.
    bound_ = std::max(bound_, answer.bound * (1 - 1e-6));
    if (best) bound_ = std::min(bound_, static_cast<double>(best->ticks));
  }
  if (answer.status == search::ModelStatus::kInfeasible ||
      answer.status == search::ModelStatus::kOptimal) {
    prove();
  }
}

MonetSolution Solver::solution_of(const MonetStorage& storage) const {
  MonetSolution x = empty_monet_solution(*question_.instance);
  MonetStageRater rater(model_);
  const auto& convs = question_.instance->conv_list;
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    // Within the budget the price does not matter.
    const MonetDecisions chosen = rater.decide(t, storage.row(t), storage.row(t + 1), 1e6);
    for (std::size_t i = 0; i < model_.num_nodes(); ++i) x.s[t + 1][i] = storage.stored(t + 1, i);
    for (std::uint32_t i : chosen.made) x.r[t][i] = x.p[t][i] = 1;
    for (std::uint32_t i : chosen.in_place) {
      x.ip[t][i] = 1;
      if (model_.nodes[i].overwrites) x.p[t][*model_.nodes[i].overwrites] = 0;
    }
    for (const auto& conv : chosen.convs) x.rf[t][convs.at(conv.node)][conv.algorithm] = 1;
    x.m[t][chosen.implementation] = 1;
    const auto id = static_cast<std::uint32_t>(question_.instance->loss + t);
    if (t > 0 && convs.contains(id)) x.rf[t][convs.at(id)][chosen.backward_algorithm] = 1;
  }
  return x;
}

// Schedules and bound side by side; first both from nothing, then more starts beside mixing the
// first ones, at last mixing them all beside branching against the best.
void Solver::search() {
  const bool endless = !std::isfinite(effort_.limits().seconds) &&
                       effort_.limits().work == std::numeric_limits<std::int64_t>::max();
  const int rounds = endless ? kMostRounds : std::numeric_limits<int>::max();
  side_by_side(
      kFirstFraction, [&](Effort& effort) { schedules_.anneal(rounds, effort); },
      [&](Effort& effort) { relax(effort); });
  if (done() || effort_.exhausted()) return;
  MonetPool more(model_, question_.seed + 1'000'003);
  side_by_side(
      kSecondFraction, [&](Effort& effort) { more.anneal(rounds, effort); },
      [&](Effort& effort) { mix(schedules_, rounds, effort); });
  schedules_.take_all(more);
  if (done() || effort_.exhausted()) return;
  MonetPool mixed = schedules_;
  side_by_side(
      1, [&](Effort& effort) { mix(mixed, rounds, effort); },
      [&](Effort& effort) { branch(effort); });
  if (branched_) schedules_.polish(branched_, kQuickWork, effort_);
  // After a proof, how far the search came meanwhile is chance.
  if (!proven_ || !done()) schedules_.take(mixed.best());
}

void Solver::mix(MonetPool& pool, int rounds, Effort& effort) const {
  if (relaxation_ && relaxation_->has_values()) pool.mix(*relaxation_, rounds, effort);
}

Result<MonetAnswer> Solver::run() {
  bound_ = trivial_bound();
  // From keeping everything.
  schedules_.polish(std::nullopt, kQuickWork, effort_);
  if (!question_.budget || done()) return answer();
  if (model_.num_nodes() * model_.num_stages() <= kMaxPairsForIntegerModel) {
    Effort proving(share(0.5, 1));
    relax(proving);
    if (!done()) branch(proving);
    effort_.add(proving.work());
    if (branched_) schedules_.polish(branched_, kQuickWork, effort_);
    if (proven_ && (infeasible_ || schedules_.best())) return answer();
  }
  if (!effort_.exhausted()) search();
  return answer();
}

Result<MonetAnswer> Solver::answer() const {
  MonetAnswer answer{
      .solution = std::nullopt, .bound = bound_, .infeasible = infeasible_, .note = {}};
  if (!relaxable_) answer.note = "too large for the relaxation: the bound is every op once";
  if (infeasible_ || !schedules_.best()) return answer;
  answer.objective = schedules_.best()->ticks;
  // Objectives are whole numbers.
  answer.bound = std::min(std::ceil(bound_ - 1e-3), static_cast<double>(answer.objective));
  answer.solution = solution_of(schedules_.best()->storage);
  const MonetRules rules{.in_place = question_.mode.in_place,
                         .ablation = !question_.mode.checkpointing};
  const MonetVerdict verdict = evaluate_monet(*question_.instance, *answer.solution,
                                              question_.budget.value_or(kNoLimit), rules);
  if (!verdict.violation.empty() || verdict.objective != answer.objective) {
    return bad_input("monet: search and evaluator disagree (" + std::to_string(answer.objective) +
                     " and " + std::to_string(verdict.objective) + " ticks" +
                     (verdict.violation.empty() ? "" : "; " + verdict.violation) +
                     "); please report this");
  }
  return answer;
}

}  // namespace

Result<MonetAnswer> solve_monet(const MonetQuestion& question, Effort& effort) {
  REGEN_ASSIGN(MonetModel model,
               make_monet_model(*question.instance, question.mode,
                                question.budget.value_or(kNoLimit), question.once));
  return Solver(question, std::move(model), effort).run();
}

}  // namespace regen::published
