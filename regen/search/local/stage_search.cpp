#include "regen/search/local/stage_search.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace regen::search {
namespace {

constexpr std::size_t kDropsTried = 16;
constexpr int kMaxEscapes = 12;
constexpr double kBlindTrialProbability = 0.05;
// By what fraction of the budget a descent lowers it at once, and the step at which it gives up.
constexpr double kFirstBudgetStepFraction = 0.04;
constexpr double kLastBudgetStepFraction = 0.0005;
constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

}  // namespace

StageSearch::StageSearch(const StageProblem& stages, Bytes budget, std::uint64_t seed,
                         Effort& effort)
    : stages_(stages), budget_(budget), random_(seed), effort_(effort), evaluator_(stages) {}

std::optional<Score> StageSearch::evaluate(const KeepMatrix& keep) {
  const auto score = evaluator_.evaluate(keep, budget_);
  effort_.add(static_cast<std::int64_t>(evaluator_.sequence().size()));
  return score;
}

// The highest step of a stage above the budget: mostly the highest of all, at times another one, so
// that the search does not always work at the same place.
std::optional<std::size_t> StageSearch::overflowing_step() {
  const auto& sequence = evaluator_.sequence();
  if (random_.between(0, 3) != 0) {
    const std::size_t peak = evaluator_.peak_step();
    return evaluator_.memory(peak) > budget_ ? std::optional(peak) : std::nullopt;
  }
  std::optional<std::size_t> chosen;
  std::int64_t seen = 0;
  for (std::size_t s = 0; s < sequence.size(); ++s) {
    if (evaluator_.memory(s) > budget_ && random_.between(0, seen++) == 0) chosen = s;
  }
  return chosen;
}

// For each value that only waits during `step`: not to hold it between its last touch before and
// its next use after, if it can be made again in another stage.
std::vector<StageSearch::Move> StageSearch::drops_at(std::size_t step) {
  const auto& sequence = evaluator_.sequence();
  const OpId op = sequence[step];
  IdVector<ValueId, std::size_t> next_use(stages_.num_values, kNever);
  for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
    if (stages_.output[v]) next_use[v] = stages_.num_ops - 1;
  }
  for (std::size_t s = sequence.size(); --s > step;) {
    for (ValueId v : stages_.makes[sequence[s]]) next_use[v] = kNever;
    for (ValueId v : stages_.reads[sequence[s]]) next_use[v] = evaluator_.stage_of(s);
  }
  const auto waits = [&](ValueId v) {
    const auto reads = stages_.reads[op];
    return next_use[v] != kNever && stages_.bytes[v] > 0 &&
           stages_.repeatable[OpId(stages_.producer[v])] && stages_.producer[v] != op.index() &&
           std::find(reads.begin(), reads.end(), v) == reads.end();
  };
  std::vector<Move> moves;
  for (std::size_t s = step; s-- > 0;) {
    const auto consider = [&](ValueId v) {
      if (!waits(v)) return;
      const std::size_t touched = evaluator_.stage_of(s);
      if (touched < next_use[v]) moves.push_back({v, touched + 1, next_use[v]});
      next_use[v] = kNever;
    };
    for (ValueId v : stages_.makes[sequence[s]]) consider(v);
    for (ValueId v : stages_.reads[sequence[s]]) consider(v);
  }
  // What the op itself touches may be held beyond its stage for others.
  return moves;
}

// For each re-run: to hold the value from where it was last touched instead.
std::vector<StageSearch::Move> StageSearch::keeps() {
  const auto& sequence = evaluator_.sequence();
  IdVector<ValueId, std::size_t> touched(stages_.num_values, kNever);
  std::vector<Move> moves;
  for (std::size_t s = 0; s < sequence.size(); ++s) {
    const OpId op = sequence[s];
    const std::size_t stage = evaluator_.stage_of(s);
    for (ValueId v : stages_.reads[op]) touched[v] = stage;
    for (ValueId v : stages_.makes[op]) {
      if (op.index() != stage && touched[v] != kNever && touched[v] < stage &&
          stage <= stages_.useful_until[v]) {
        moves.push_back({v, touched[v] + 1, stage});
      }
      touched[v] = stage;
    }
  }
  return moves;
}

// The drop that costs least for what it takes off the overflow, with some noise in the judgement.
std::optional<StageSearch::Move> StageSearch::best_drop(const Schedule& schedule,
                                                        const std::vector<Move>& moves) {
  std::optional<Move> best;
  double best_price = std::numeric_limits<double>::infinity();
  const double small = 1e-6 * stages_.base_cost / static_cast<double>(stages_.num_ops);
  KeepMatrix trial = schedule.keep;
  for (const Move& move : moves) {
    trial.clear(move.value, move.first, move.last);
    const auto score = evaluate(trial);
    for (std::size_t t = move.first; t <= move.last; ++t) {
      if (schedule.keep.get(t, move.value)) trial.set(t, move.value);
    }
    if (!score || score->overflow >= schedule.score.overflow) continue;
    const double gain = static_cast<double>(schedule.score.overflow - score->overflow);
    const double noise = 0.75 + 0.5 * random_.real();
    const double price = noise * (score->cost - schedule.score.cost + small) / gain;
    if (price < best_price) {
      best_price = price;
      best = move;
    }
  }
  return best;
}

bool StageSearch::repair(Schedule& schedule) {
  for (int stuck = 0; stuck < kMaxEscapes && !effort_.exhausted();) {
    schedule.score = *evaluate(schedule.keep);
    if (schedule.score.fits()) return true;
    const auto step = overflowing_step();
    if (!step) continue;
    std::vector<Move> moves = drops_at(*step);
    // The cheap ones for their size first; the others only if none of those helps.
    std::ranges::sort(moves, {}, [&](const Move& move) {
      return stages_.rerun_cost[OpId(stages_.producer[move.value])] /
             static_cast<double>(stages_.bytes[move.value]);
    });
    const std::size_t few = std::min(moves.size(), kDropsTried);
    std::optional<Move> best = best_drop(schedule, {moves.begin(), moves.begin() + few});
    if (!best) best = best_drop(schedule, {moves.begin() + few, moves.end()});
    if (!best) {
      // No drop helps alone; one of them may make another one possible.
      ++stuck;
      if (moves.empty()) continue;
      best = moves[static_cast<std::size_t>(random_.between(0, std::ssize(moves) - 1))];
      KeepMatrix trial = schedule.keep;
      trial.clear(best->value, best->first, best->last);
      if (!evaluate(trial)) continue;
    }
    schedule.keep.clear(best->value, best->first, best->last);
  }
  return false;
}

std::vector<Bytes> StageSearch::stage_peaks() const {
  std::vector<Bytes> peaks(stages_.num_ops, 0);
  for (std::size_t s = 0; s < evaluator_.sequence().size(); ++s) {
    Bytes& peak = peaks[evaluator_.stage_of(s)];
    peak = std::max(peak, evaluator_.memory(s));
  }
  return peaks;
}

void StageSearch::improve(Schedule& schedule) {
  bool better = true;
  while (better && !effort_.exhausted()) {
    better = false;
    schedule.score = *evaluate(schedule.keep);
    std::vector<Move> moves = keeps();
    const std::vector<Bytes> peaks = stage_peaks();
    std::ranges::stable_sort(moves, std::greater(), [&](const Move& move) {
      return stages_.rerun_cost[OpId(stages_.producer[move.value])];
    });
    for (const Move& move : moves) {
      // A stage in between has no room for it: this rarely succeeds, so it is rarely tried.
      const bool room = std::all_of(
          peaks.begin() + static_cast<std::ptrdiff_t>(move.first),
          peaks.begin() + static_cast<std::ptrdiff_t>(std::min(move.last, peaks.size())),
          [&](Bytes peak) { return peak + stages_.bytes[move.value] <= budget_; });
      if (!room && !random_.chance(kBlindTrialProbability)) continue;
      KeepMatrix trial = schedule.keep;
      trial.set(move.value, move.first, move.last);
      const auto score = evaluate(trial);
      if (score && score->fits() && score->cost < schedule.score.cost) {
        schedule = {std::move(trial), *score};
        better = true;
      }
    }
  }
}

void StageSearch::perturb(Schedule& schedule) {
  evaluate(schedule.keep);
  const std::vector<Move> moves = keeps();
  if (moves.empty()) return;
  const std::int64_t count = random_.between(1, std::min<std::int64_t>(16, std::ssize(moves)));
  for (std::int64_t i = 0; i < count; ++i) {
    const Move& move = moves[static_cast<std::size_t>(random_.between(0, std::ssize(moves) - 1))];
    schedule.keep.set(move.value, move.first, move.last);
  }
}

void StageSearch::offer(const Schedule& schedule) {
  if (schedule.score.fits() && (!best_ || schedule.score.cost < best_->score.cost)) {
    best_ = schedule;
  }
}

bool StageSearch::add_start(KeepMatrix start) {
  Schedule schedule{std::move(start), {}};
  if (!evaluate(schedule.keep) || !repair(schedule)) return false;
  improve(schedule);
  offer(schedule);
  return true;
}

bool StageSearch::descend(KeepMatrix start) {
  const Bytes target = budget_;
  Schedule schedule{std::move(start), {}};
  const auto score = evaluate(schedule.keep);
  if (!score) return false;
  double step = kFirstBudgetStepFraction;
  budget_ = std::max(target, score->peak);
  while (budget_ > target && step > kLastBudgetStepFraction && !effort_.exhausted()) {
    const Bytes before = budget_;
    budget_ = std::max(target, static_cast<Bytes>(static_cast<double>(before) * (1 - step)));
    Schedule trial = schedule;
    if (!repair(trial)) {
      // Perturb the schedule that fitted, and try a smaller step from there.
      budget_ = before;
      step /= 2;
      trial = schedule;
      perturb(trial);
      if (repair(trial)) schedule = std::move(trial);
      continue;
    }
    improve(trial);
    schedule = std::move(trial);
    // Room gained for nothing is taken along.
    budget_ = std::max(target, std::min(budget_, schedule.score.peak));
    step = std::min(kFirstBudgetStepFraction, step * 1.5);
  }
  const bool arrived = budget_ == target;
  budget_ = target;
  return arrived && add_start(std::move(schedule.keep));
}

void StageSearch::run(int rounds, std::int64_t work, double goal,
                      const std::function<void(double)>& on_better) {
  if (!best_) return;
  const std::int64_t last_work = effort_.work() + work;
  Schedule current = *best_;
  for (int idle = 0; idle < rounds && best_->score.cost > goal && effort_.work() < last_work &&
                     !effort_.exhausted();
       ++idle) {
    Schedule trial = current;
    perturb(trial);
    if (!repair(trial)) continue;
    improve(trial);
    const double slack = 1 + 0.001 * random_.real() * random_.real();
    if (trial.score.cost <= current.score.cost * slack) current = trial;
    if (trial.score.cost < best_->score.cost) {
      idle = 0;
      offer(trial);
      if (on_better) on_better(best_->score.cost);
    }
    if (current.score.cost > best_->score.cost * 1.01) current = *best_;
  }
}

std::vector<OpId> StageSearch::best_sequence() {
  evaluate(best_->keep);
  return evaluator_.sequence();
}

}  // namespace regen::search
