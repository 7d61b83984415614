#include "regen/search/local/interval_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "regen/search/build/sequence.h"

namespace regen::search {

IntervalModel::IntervalModel(const Graph& graph, bool gradients_again)
    : graph_(graph), repeatable_(repeatable_ops(graph, /*forward_only=*/!gradients_again)) {
  // The ops that use each tensor in the variant that is run, ascending.
  IdVector<TensorId, std::vector<std::uint32_t>> uses(graph.num_tensors());
  for (OpId op : graph.ops()) {
    const VariantId variant = base_variant(graph, op);
    const auto note = [&](TensorId t) {
      if (!graph.fixed(t)) uses[t].push_back(static_cast<std::uint32_t>(op.index()));
    };
    for (TensorId t : graph.reads(variant)) note(t);
    for (TensorId t : graph.makes(variant)) note(t);
  }
  const auto end = static_cast<std::uint32_t>(graph.num_ops());
  first_ = IdVector<TensorId, std::uint32_t>(graph.num_tensors() + 1, 0);
  for (TensorId t : graph.tensors()) {
    first_[t] = static_cast<std::uint32_t>(intervals_.size());
    for (std::size_t i = 0; i < uses[t].size(); ++i) {
      intervals_.push_back({t, uses[t][i], i + 1 < uses[t].size() ? uses[t][i + 1] : end});
      const bool stays = i + 1 == uses[t].size() && graph.kind(t) == TensorKind::kOutput;
      droppable_.push_back(repeatable_[graph.producer(t)] && !stays);
    }
  }
  first_[TensorId(graph.num_tensors())] = static_cast<std::uint32_t>(intervals_.size());
  identity_.resize(intervals_.size());
  std::iota(identity_.begin(), identity_.end(), IntervalId{0});
}

std::span<const IntervalId> IntervalModel::intervals_of(TensorId t) const {
  const std::uint32_t first = first_[t];
  return std::span(identity_).subspan(first, first_[TensorId(t.index() + 1)] - first);
}

IntervalId IntervalModel::interval_at(TensorId t, std::uint32_t op) const {
  const auto own = intervals_of(t);
  const auto behind =
      std::ranges::partition_point(own, [&](IntervalId g) { return intervals_[g].begin < op; });
  return behind == own.begin() ? own.front() : *(behind - 1);
}

Holdings IntervalModel::keep_everything() const {
  Holdings holdings(size());
  for (IntervalId g = 0; g < size(); ++g) {
    holdings[g] = last(g) && droppable(g) ? Holding::kDropped : Holding::kHeld;
  }
  return holdings;
}

// Goes through the ops in order and tracks what is on the device.
class IntervalModel::Walk {
 public:
  Walk(const IntervalModel& model, const Holdings& holdings)
      : model_(model),
        graph_(model.graph_),
        holdings_(holdings),
        available_(graph_.num_tensors(), 0),
        current_(graph_.num_tensors(), 0),
        mark_(graph_.num_ops(), 0) {
    for (TensorId t : graph_.tensors()) {
      available_[t] = graph_.fixed(t);
      current_[t] = model.first_[t];
    }
    result_.ops.reserve(graph_.num_ops() * 2);
    result_.stage.reserve(graph_.num_ops() * 2);
    result_.returned.reserve(model.size());
    for (const ReuseInterval& interval : model.intervals_) result_.returned.push_back(interval.end);
  }

  IntervalSequence run() && {
    for (OpId op : graph_.ops()) stage(op);
    return std::move(result_);
  }

 private:
  void stage(OpId op) {
    const VariantId variant = base_variant(graph_, op);
    find_missing(graph_.reads(variant));
    for (OpId again : missing_) {
      note_return(again, op);
      append(again, op);
    }
    append(op, op);
    for (TensorId t : graph_.reads(variant)) enter_next_interval(t);
    for (TensorId t : graph_.makes(variant)) enter_interval(t);
    for (OpId again : missing_) {
      for (TensorId t : graph_.makes(base_variant(graph_, again))) drop_if_unwanted(t);
    }
  }

  void append(OpId op, OpId stage) {
    result_.ops.push_back(op);
    result_.stage.push_back(static_cast<std::uint32_t>(stage.index()));
    const VariantId variant = base_variant(graph_, op);
    for (TensorId t : graph_.makes(variant)) available_[t] = 1;
    const TensorId overwritten = graph_.overwrites(variant);
    if (overwritten.valid()) available_[overwritten] = 0;
  }

  void note_return(OpId again, OpId stage) {
    for (TensorId t : graph_.makes(base_variant(graph_, again))) {
      std::uint32_t& returned = result_.returned[current_[t]];
      if (!available_[t]) returned = std::min(returned, static_cast<std::uint32_t>(stage.index()));
    }
  }

  void enter_next_interval(TensorId t) {
    if (graph_.fixed(t)) return;
    if (!model_.last(current_[t])) ++current_[t];
    enter_interval(t);
  }
  void enter_interval(TensorId t) {
    if (model_.droppable(current_[t]) && holdings_[current_[t]] != Holding::kHeld) {
      available_[t] = 0;
    }
  }
  // A recomputed value is held for its next use, unless the decision is kNever.
  void drop_if_unwanted(TensorId t) {
    const IntervalId g = current_[t];
    if (model_.droppable(g) && holdings_[g] == Holding::kNever) available_[t] = 0;
  }

  // In the order of the graph, so that each finds what it reads.
  void find_missing(std::span<const TensorId> reads) {
    ++round_;
    missing_.clear();
    visit(reads);
    for (std::size_t i = 0; i < missing_.size(); ++i) {
      visit(graph_.reads(base_variant(graph_, missing_[i])));
    }
    std::ranges::sort(missing_);
  }
  void visit(std::span<const TensorId> reads) {
    for (TensorId t : reads) {
      if (available_[t]) continue;
      const OpId maker = graph_.producer(t);
      if (mark_[maker] == round_) continue;
      mark_[maker] = round_;
      missing_.push_back(maker);
    }
  }

  const IntervalModel& model_;
  const Graph& graph_;
  const Holdings& holdings_;
  IdVector<TensorId, char> available_;
  IdVector<TensorId, IntervalId> current_;
  IdVector<OpId, std::uint32_t> mark_;
  std::uint32_t round_ = 0;
  std::vector<OpId> missing_;
  IntervalSequence result_;
};

IntervalSequence IntervalModel::sequence(const Holdings& holdings) const {
  return Walk(*this, holdings).run();
}

bool IntervalModel::read_plan(const Plan& plan, Holdings& holdings,
                              IdVector<TensorId, char>& moved) const {
  holdings = keep_everything();
  moved = IdVector<TensorId, char>(graph_.num_tensors(), 0);
  // While the first op that has not run yet is `stage`, a second making ends the absence of a
  // value.
  std::uint32_t stage = 0;
  IdVector<TensorId, char> here(graph_.num_tensors(), 0);
  for (const Step& step : plan.steps) {
    if (step.kind() == StepKind::kOffload) moved[step.tensor()] = 1;
    if (step.kind() != StepKind::kCompute) {
      here[step.tensor()] = step.kind() != StepKind::kRelease;
      continue;
    }
    const auto op = static_cast<std::uint32_t>(step.op().index());
    if (op > stage) return false;
    const bool first = op == stage;
    stage += first;
    const VariantId variant = step.variant(graph_);
    if (graph_.overwrites(variant).valid()) here[graph_.overwrites(variant)] = 0;
    for (TensorId t : graph_.makes(variant)) {
      const bool was_here = std::exchange(here[t], 1);
      const IntervalId g = interval_at(t, stage);
      if (first || was_here || !droppable(g) || last(g)) continue;
      // Made twice in one interval: it was not held in between.
      holdings[g] = holdings[g] == Holding::kHeld ? Holding::kDropped : Holding::kNever;
    }
  }
  return stage == graph_.num_ops();
}

}  // namespace regen::search
