#include "regen/search/exact/stage_model.h"

#include <algorithm>
#include <limits>

#include "regen/base/tolerance.h"

namespace regen::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kRowsPerStage = 2;

std::uint32_t last_first_use(const StageProblem& stages, ValueId v) {
  if (stages.output[v]) return static_cast<std::uint32_t>(stages.num_ops);
  const auto readers = stages.readers[v];
  return readers.empty() ? 0 : static_cast<std::uint32_t>(readers.back().index());
}

}  // namespace

void Expression::add(Ref ref, double weight) {
  if (ref == kOne) constant += weight;
  if (ref >= 0) terms.push_back({ref, weight});
}

Expression Expression::merged() && {
  std::ranges::sort(terms, {}, &Term::column);
  Expression result{.constant = constant};
  for (const Term& term : terms) {
    if (!result.terms.empty() && result.terms.back().column == term.column) {
      result.terms.back().weight += term.weight;
    } else {
      result.terms.push_back(term);
    }
  }
  return result;
}

StageModel::StageModel(StageProblem stages, Bytes budget)
    : stages_(std::move(stages)), budget_(budget) {
  double highest_cost = 0;
  for (OpId op : stages_.graph->ops()) {
    if (stages_.rerun_until[op] > 0) highest_cost = std::max(highest_cost, stages_.rerun_cost[op]);
  }
  cost_scale_ = highest_cost > 0 ? highest_cost / 100 : 1;
  memory_scale_ = std::max(1.0, static_cast<double>(budget) / 1000);
  add_columns();
  add_logic();
  for (std::size_t stage = 0; stage < stages_.num_ops; ++stage) add_memory_row(stage, stage);
}

std::size_t StageModel::count_columns(const StageProblem& stages) {
  std::size_t count = 0;
  for (OpId op : stages.graph->ops()) {
    if (stages.rerun_until[op] > 0) count += stages.rerun_until[op] - op.index();
  }
  for (ValueId v : IdRange<ValueId>(stages.num_values)) {
    count += std::max(stages.useful_until[v], stages.producer[v]) - stages.producer[v];
  }
  return count;
}

Ref StageModel::run(std::size_t stage, OpId op) const {
  if (op.index() == stage) return kOne;
  if (op.index() > stage || stage > stages_.rerun_until[op]) return kZero;
  return first_run_column_[op] + static_cast<int>(stage - op.index() - 1);
}

Ref StageModel::kept(std::size_t stage, ValueId v) const {
  const std::size_t producer = stages_.producer[v];
  if (stage <= producer || stage > stages_.useful_until[v]) return kZero;
  // Values without bytes are always kept; values that cannot be recomputed must be.
  if (stages_.bytes[v] == 0 || stage == stages_.num_ops) return kOne;
  if (!stages_.repeatable[OpId(producer)] && stage <= last_first_use(stages_, v)) return kOne;
  return first_keep_column_[v] + static_cast<int>(stage - producer - 1);
}

double StageModel::value(Ref ref, const std::vector<double>& values) const {
  return ref == kZero ? 0 : ref == kOne ? 1 : values[static_cast<std::size_t>(ref)];
}

void StageModel::add_columns() {
  for (OpId op : stages_.graph->ops()) {
    first_run_column_.push_back(model_.num_columns());
    for (std::size_t t = op.index() + 1; t <= stages_.rerun_until[op]; ++t) {
      model_.add_column(to_model(stages_.rerun_cost[op]), 0, 1, true);
    }
  }
  for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
    first_keep_column_.push_back(model_.num_columns());
    for (std::size_t t = stages_.producer[v] + 1; t <= stages_.useful_until[v]; ++t) {
      model_.add_column(0, 0, 1, true);
    }
  }
}

void StageModel::add_at_most_zero(Expression expression) {
  const Expression row = std::move(expression).merged();
  model_.add_row(-kInfinity, -row.constant, row.terms);
}

void StageModel::limit_reruns(std::span<const OpId> ops, double least, double most) {
  Expression row;
  for (const OpId op : ops) {
    for (std::size_t t = op.index() + 1; t <= stages_.rerun_until[op]; ++t) {
      row.add(run(t, op), 1);
    }
  }
  model_.add_row(least, most, row.terms);
}

// small <= first + second
void StageModel::add_at_most(Ref small, Ref first, Ref second) {
  if (small == kZero || first == kOne || second == kOne) return;
  Expression row;
  row.add(small, 1);
  row.add(first, -1);
  row.add(second, -1);
  add_at_most_zero(std::move(row));
}

// What an op reads is live, and so is what a stage begins with.
void StageModel::add_logic() {
  for (OpId op : stages_.graph->ops()) {
    const std::size_t last = std::max<std::size_t>(op.index(), stages_.rerun_until[op]);
    for (std::size_t t = op.index(); t <= last; ++t) {
      for (ValueId v : stages_.reads[op]) {
        add_at_most(run(t, op), kept(t, v), run(t, OpId(stages_.producer[v])));
      }
    }
  }
  for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
    const OpId producer(stages_.producer[v]);
    const std::size_t last = std::min<std::size_t>(stages_.useful_until[v], stages_.num_ops);
    // The stage of the first run gives it to the next one freely.
    for (std::size_t t = producer.index() + 2; t <= last; ++t) {
      add_at_most(kept(t, v), kept(t - 1, v), run(t - 1, producer));
    }
  }
}

// The readers of v at op `point` or later in this stage, if it was made before `point`.
std::vector<Ref> StageModel::holders(std::size_t stage, ValueId v, std::size_t point) const {
  std::vector<Ref> result;
  const Ref next = kept(stage + 1, v);
  if (next == kOne) return {kOne};
  if (next != kZero) result.push_back(next);
  const auto readers = stages_.readers[v];
  for (auto reader = std::lower_bound(readers.begin(), readers.end(), OpId(point));
       reader != readers.end() && reader->index() <= stage; ++reader) {
    const Ref ref = run(stage, *reader);
    if (ref == kOne) return {kOne};
    if (ref != kZero) result.push_back(ref);
  }
  return result;
}

Ref StageModel::hold(std::size_t stage, ValueId v, std::size_t point) {
  const std::vector<Ref> parts = holders(stage, v, point);
  if (parts.empty()) return kZero;
  if (parts.size() == 1) return parts.front();
  const auto readers = stages_.readers[v];
  const auto reader = std::lower_bound(readers.begin(), readers.end(), OpId(point));
  const std::uint64_t key =
      (stage * stages_.num_values + v.index()) * (stages_.num_ops + 1) + reader->index();
  const auto [entry, inserted] = holds_.try_emplace(key);
  if (inserted) {
    entry->second = model_.add_column(0, 0, 1, true);
    for (const Ref part : parts) add_at_most(part, entry->second, kZero);
  }
  return entry->second;
}

void StageModel::add_memory_row(std::size_t stage, std::size_t point) {
  memory_rows_.insert(stage * stages_.num_ops + point);
  const OpId op(point);
  Expression row;
  for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
    if (stages_.producer[v] > stage || stages_.bytes[v] == 0) continue;
    const double weight = static_cast<double>(stages_.bytes[v]) / memory_scale_;
    if (stages_.producer[v] < point) {
      row.add(hold(stage, v, point), weight);
    } else {
      if (stages_.producer[v] == point) row.add(run(stage, op), weight);
      row.add(kept(stage, v), weight);
    }
  }
  row.add(run(stage, op), static_cast<double>(stages_.workspace[op]) / memory_scale_);
  row.constant -= static_cast<double>(budget_) / memory_scale_;
  add_at_most_zero(std::move(row));
}

double StageModel::memory_at(std::size_t stage, std::size_t point,
                             const std::vector<double>& values) const {
  const OpId op(point);
  double sum = static_cast<double>(stages_.workspace[op]) * value(run(stage, op), values);
  for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
    if (stages_.producer[v] > stage || stages_.bytes[v] == 0) continue;
    double amount = 0;
    if (stages_.producer[v] < point) {
      for (const Ref ref : holders(stage, v, point)) amount = std::max(amount, value(ref, values));
    } else {
      if (stages_.producer[v] == point) amount = value(run(stage, op), values);
      amount += value(kept(stage, v), values);
    }
    sum += amount * static_cast<double>(stages_.bytes[v]);
  }
  return sum;
}

int StageModel::add_broken_memory_rows(const std::vector<double>& values) {
  int added = 0;
  const double limit = static_cast<double>(budget_) * (1 + kMemoryViolation);
  for (std::size_t stage = 0; stage < stages_.num_ops; ++stage) {
    std::vector<std::pair<double, std::size_t>> broken;
    for (std::size_t point = 0; point < stage; ++point) {
      // Where the op does not run, the rows of its neighbours imply this one.
      if (value(run(stage, OpId(point)), values) < kZeroFraction) continue;
      if (memory_rows_.contains(stage * stages_.num_ops + point)) continue;
      const double memory = memory_at(stage, point, values);
      if (memory > limit) broken.emplace_back(-memory, point);
    }
    std::ranges::sort(broken);
    for (std::size_t i = 0; i < std::min(broken.size(), kRowsPerStage); ++i, ++added) {
      add_memory_row(stage, broken[i].second);
    }
  }
  return added;
}

std::optional<std::vector<OpId>> StageModel::rounded(const std::vector<double>& values,
                                                     double threshold) const {
  return sequence_of_stages(stages_, [&](std::size_t stage, ValueId v) {
    return value(kept(stage, v), values) >= threshold;
  });
}

}  // namespace regen::search
