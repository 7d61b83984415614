#include "regen/search/exact/transfer_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace regen::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Numbers of the model have this order of magnitude, so that tolerances mean the same everywhere.
constexpr double kScale = 1000;

// The stage behind the last op included.
std::size_t last_of_use(const StageProblem& stages, ValueId v) {
  return stages.useful_behind[v] ? stages.num_ops : stages.useful_until[v];
}

}  // namespace

TransferModel::TransferModel(const Problem& problem, const StageProblem& stages, double most_extra)
    : problem_(problem),
      stages_(stages),
      budget_(*problem.budget - stages.fixed_bytes),
      cost_scale_(stages.base_cost > 0 ? stages.base_cost / kScale : 1),
      moves_(problem.link.can_move() && problem.host_budget.value_or(1) > 0),
      run_(stages.num_ops),
      kept_(stages.num_values),
      fetched_(stages.num_values),
      on_host_(stages.num_values),
      arrived_(stages.num_values) {
  add_columns(most_extra);
  add_availability();
  if (moves_) add_transfers();
  add_lengths();
  add_memory();
}

std::size_t TransferModel::count_columns(const StageProblem& stages) {
  std::size_t count = stages.num_ops + 1;
  for (std::size_t i = 0; i < stages.num_ops; ++i) {
    const OpId op(i);
    if (stages.rerun_until[op] > i) count += stages.rerun_until[op] - i + 1;
  }
  for (ValueId v : IdRange<ValueId>(stages.num_values)) {
    const std::size_t last = last_of_use(stages, v);
    if (last > stages.producer[v]) count += 4 * (last - stages.producer[v]);
  }
  return count;
}

bool TransferModel::may_move(ValueId v) const {
  return moves_ && stages_.bytes[v] <= problem_.host_budget.value_or(kMaxBytes);
}

TransferModel::Columns TransferModel::add_range(std::size_t first_stage, std::size_t last_stage,
                                                double high) {
  Columns columns{.first_stage = first_stage, .first = model_.num_columns()};
  for (std::size_t t = first_stage; t <= last_stage; ++t, ++columns.count) {
    model_.add_column(0, 0, high, false);
  }
  return columns;
}

Ref TransferModel::at(const Columns& columns, std::size_t stage) const {
  if (stage < columns.first_stage || stage >= columns.first_stage + columns.count) return kZero;
  return columns.first + static_cast<int>(stage - columns.first_stage);
}

void TransferModel::add_columns(double most_extra) {
  const double extra = most_extra / cost_scale_;
  for (std::size_t t = 0; t <= stages_.num_ops; ++t) {
    const double least = t < stages_.num_ops ? stages_.first_cost[OpId(t)] / cost_scale_ : 0.0;
    length_.push_back(model_.add_column(1, least, least + extra, false));
  }
  for (std::size_t i = 0; i < stages_.num_ops; ++i) {
    const OpId op(i);
    const bool again = stages_.rerun_until[op] > i && stages_.rerun_cost[op] <= most_extra;
    if (!again) continue;
    run_[op] =
        add_range(i + 1, stages_.rerun_behind[op] ? stages_.num_ops : stages_.rerun_until[op], 1);
  }
  for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
    const std::size_t first = stages_.producer[v] + 1;
    const std::size_t last = last_of_use(stages_, v);
    if (last < first) continue;
    kept_[v] = add_range(first, last, 1);
    if (!may_move(v)) continue;
    fetched_[v] = add_range(first, last, 1);
    on_host_[v] = add_range(first, last, 1);
    // At most the rest of an earlier fetch and one of this stage.
    arrived_[v] = add_range(first, last, 2);
  }
}

void TransferModel::at_least_zero(Expression expression) {
  Expression merged = std::move(expression).merged();
  if (!merged.terms.empty()) model_.add_row(-merged.constant, kInfinity, merged.terms);
}

Expression TransferModel::presence(std::size_t stage, ValueId v) const {
  Expression sum;
  sum.add(at(kept_[v], stage), 1);
  sum.add(at(run_[OpId(stages_.producer[v])], stage), 1);
  sum.add(at(fetched_[v], stage), 1);
  return sum;
}

void TransferModel::require_presence(std::size_t stage, ValueId v, Ref by) {
  Expression row = presence(stage, v);
  row.add(by, -1);
  at_least_zero(std::move(row));
}

void TransferModel::add_availability() {
  for (std::size_t i = 0; i < stages_.num_ops; ++i) {
    const OpId op(i);
    for (ValueId v : stages_.reads[op]) {
      require_presence(i, v, kOne);
      const Columns& again = run_[op];
      for (std::size_t t = again.first_stage; t < again.first_stage + again.count; ++t) {
        require_presence(t, v, at(again, t));
      }
    }
  }
  for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
    // At the start of the stage after its making it is there if it was kept, at no condition.
    const Columns& kept = kept_[v];
    for (std::size_t t = kept.first_stage + 1; t < kept.first_stage + kept.count; ++t) {
      require_presence(t - 1, v, at(kept, t));
    }
    if (stages_.output[v]) require_presence(stages_.num_ops, v, kOne);
  }
}

void TransferModel::add_transfers() {
  for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
    const Columns& host = on_host_[v];
    for (std::size_t t = host.first_stage; t < host.first_stage + host.count; ++t) {
      Expression grows;  // only while the value is there to be copied
      grows.add(at(host, t), 1);
      grows.add(at(host, t - 1), -1);
      Expression while_there = presence(t, v);
      for (const Term& term : grows.terms) while_there.add(term.column, -term.weight);
      at_least_zero(std::move(grows));
      at_least_zero(std::move(while_there));
      Expression whole_copy;
      whole_copy.add(at(host, t), 1);
      whole_copy.add(at(fetched_[v], t), -1);
      at_least_zero(std::move(whole_copy));
    }
    // An op that reads the value has waited for all its fetches.
    for (OpId reader : stages_.readers[v]) {
      Expression come;
      for (std::size_t t = host.first_stage; t <= reader.index(); ++t) {
        come.add(at(arrived_[v], t), 1);
        come.add(at(fetched_[v], t), -1);
      }
      at_least_zero(std::move(come));
    }
  }
}

void TransferModel::add_lengths() {
  const double out = moves_ ? 1 / problem_.link.to_host / cost_scale_ : 0;
  const double in = moves_ ? 1 / problem_.link.to_device / cost_scale_ : 0;
  const double both = moves_ ? 1 / problem_.link.both / cost_scale_ : 0;
  for (std::size_t t = 0; t <= stages_.num_ops; ++t) {
    Expression computes, to_host, to_device, together, awaited;
    for (Expression* row : {&computes, &to_host, &to_device, &together, &awaited}) {
      row->add(length_[t], 1);
    }
    if (t < stages_.num_ops) {
      const double own = stages_.first_cost[OpId(t)] / cost_scale_;
      computes.add(kOne, -own);
      awaited.add(kOne, -own);
      for (ValueId v : stages_.reads[OpId(t)]) {
        awaited.add(at(arrived_[v], t), -in * static_cast<double>(stages_.bytes[v]));
      }
    }
    for (OpId op : IdRange<OpId>(std::min(t, stages_.num_ops))) {
      computes.add(at(run_[op], t), -stages_.rerun_cost[op] / cost_scale_);
    }
    for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
      const auto bytes = static_cast<double>(stages_.bytes[v]);
      for (const auto& [ref, sign] :
           {std::pair{at(on_host_[v], t), -1.0}, std::pair{at(on_host_[v], t - 1), 1.0}}) {
        // After the last stage of use nothing is copied any more.
        if (at(on_host_[v], t) == kZero) continue;
        to_host.add(ref, sign * out * bytes);
        together.add(ref, sign * both * bytes);
      }
      to_device.add(at(arrived_[v], t), -in * bytes);
      together.add(at(arrived_[v], t), -both * bytes);
    }
    at_least_zero(std::move(computes));
    if (!moves_) continue;
    at_least_zero(std::move(to_host));
    at_least_zero(std::move(to_device));
    at_least_zero(std::move(awaited));
    if (problem_.link.both < problem_.link.to_host + problem_.link.to_device) {
      at_least_zero(std::move(together));
    }
  }
}

void TransferModel::add_memory() {
  const double unit = std::max(1.0, static_cast<double>(budget_) / kScale);
  for (std::size_t t = 0; t < stages_.num_ops; ++t) {
    const OpId op(t);
    Bytes own = stages_.workspace[op];
    for (ValueId v : stages_.reads[op]) own += stages_.bytes[v];
    for (ValueId v : stages_.makes[op]) own += stages_.bytes[v];
    std::vector<Term> terms;
    for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
      const bool counted = stages_.producer[v] == t ||
                           std::ranges::find(stages_.reads[op], v) != stages_.reads[op].end();
      const Ref kept = at(kept_[v], t + 1);
      if (counted || kept == kZero || stages_.bytes[v] == 0) continue;
      terms.push_back({kept, static_cast<double>(stages_.bytes[v]) / unit});
    }
    if (!terms.empty()) {
      model_.add_row(-kInfinity, static_cast<double>(budget_ - own) / unit, terms);
    }
  }
}

TransferBound TransferModel::relax(Effort& effort) {
  ModelAnswer answer = model_.solve_relaxation(effort);
  return {.status = answer.status,
          .bound = std::max(stages_.base_cost, answer.bound * cost_scale_),
          .values = std::move(answer.values)};
}

TransferModel::Fractions TransferModel::fractions(ValueId v,
                                                  const std::vector<double>& values) const {
  const auto value_of = [&](Ref ref) {
    return ref >= 0 ? values[static_cast<std::size_t>(ref)] : 0.0;
  };
  const Columns& columns = kept_[v];
  Fractions result{std::vector<double>(columns.count), std::vector<double>(columns.count)};
  double fetches_to_come = 0;
  for (std::size_t i = columns.count; i-- > 0;) {
    const std::size_t stage = columns.first_stage + i;
    fetches_to_come = std::min(1.0, fetches_to_come + value_of(at(fetched_[v], stage)));
    result.here[i] = value_of(at(columns, stage));
    // A copy on the host is worth as much as will come back of it.
    result.there[i] = std::min(fetches_to_come, value_of(at(on_host_[v], stage)));
  }
  return result;
}

Decisions TransferModel::rounded(const IntervalModel& model, const std::vector<double>& values,
                                 double threshold) const {
  Decisions decisions = model.keep_everything();
  for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
    const Columns& columns = kept_[v];
    const Fractions fraction = fractions(v, values);
    for (const IntervalId g : model.intervals_of(stages_.tensor[v])) {
      const ReuseInterval& interval = model.interval(g);
      if (model.last(g) || interval.end - interval.begin <= 1) continue;
      const std::size_t end = interval.end - columns.first_stage;
      if (end >= columns.count) continue;
      bool moved = false;
      for (std::size_t i = interval.begin + 1 - columns.first_stage; i <= end; ++i) {
        moved |= fraction.there[i] > fraction.here[i];
      }
      const bool resident = std::max(fraction.here[end], fraction.there[end]) >= threshold;
      if (resident && moved) decisions[g] = Holding::kMoved;
      if (!resident && model.droppable(g)) decisions[g] = Holding::kDropped;
    }
  }
  return decisions;
}

}  // namespace regen::search
