#include "regen/search/local/interval_model.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "regen/search/build/sequence.h"

namespace regen::search {

namespace {

template <typename Event>
void insert_once(std::vector<Event>& ascending, const Event& event) {
  const auto place = std::ranges::lower_bound(ascending, event);
  if (place == ascending.end() || *place != event) ascending.insert(place, event);
}

template <typename Event>
void erase_from(std::vector<Event>& ascending, const Event& event) {
  const auto place = std::ranges::lower_bound(ascending, event);
  if (place != ascending.end() && *place == event) ascending.erase(place);
}

}  // namespace

void Decisions::add(const EarlyDrop& drop) {
  insert_once(early_drops_, drop);
}
void Decisions::remove(const EarlyDrop& drop) {
  erase_from(early_drops_, drop);
}
void Decisions::add(const EarlyRun& run) {
  insert_once(early_runs_, run);
}
void Decisions::remove(const EarlyRun& run) {
  erase_from(early_runs_, run);
}

IntervalModel::IntervalModel(const Graph& graph, bool gradients_again)
    : graph_(graph), last_rerun_(graph.num_ops(), 0), variant_(graph.num_ops()) {
  std::vector<TensorId> planned;
  const auto without_fixed = [&](std::span<const TensorId> tensors) {
    planned.clear();
    std::ranges::remove_copy_if(tensors, std::back_inserter(planned),
                                [&](TensorId t) { return graph.fixed(t); });
    return std::span<const TensorId>(planned);
  };
  for (OpId op : graph.ops()) {
    variant_[op] = base_variant(graph, op);
    overwrites_ |= graph.overwrites(variant_[op]).valid();
    reads_.append_row(without_fixed(graph.reads(variant_[op])));
    makes_.append_row(without_fixed(graph.makes(variant_[op])));
  }
  find_last_reruns(gradients_again);
  find_awaited_outputs();
  // The ops that use each tensor in the variant that is run, ascending.
  IdVector<TensorId, std::vector<std::uint32_t>> uses(graph.num_tensors());
  IdVector<TensorId, char> awaited(graph.num_tensors(), 0);
  for (OpId op : graph.ops()) {
    const auto index = static_cast<std::uint32_t>(op.index());
    for (TensorId t : reads_[op]) uses[t].push_back(index);
    for (TensorId t : makes_[op]) uses[t].push_back(index);
    for (TensorId t : awaits_[op]) {
      uses[t].push_back(index);
      awaited[t] = 1;
    }
  }
  first_ = IdVector<TensorId, std::uint32_t>(graph.num_tensors() + 1, 0);
  for (TensorId t : graph.tensors()) {
    first_[t] = static_cast<std::uint32_t>(intervals_.size());
    add_intervals(t, uses[t], awaited[t] != 0);
  }
  first_[TensorId(graph.num_tensors())] = static_cast<std::uint32_t>(intervals_.size());
  for (const ReuseInterval& interval : intervals_) ends_.push_back(interval.end);
  identity_.resize(intervals_.size());
  std::iota(identity_.begin(), identity_.end(), IntervalId{0});
}

void IntervalModel::add_intervals(TensorId t, const std::vector<std::uint32_t>& uses,
                                  bool awaited) {
  const auto end = static_cast<std::uint32_t>(graph_.num_ops());
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const bool last = i + 1 == uses.size();
    intervals_.push_back({t, uses[i], last ? end : uses[i + 1]});
    const bool stays = last && graph_.kind(t) == TensorKind::kOutput;
    // After the last use, a value is of use in re-runs only, as long as its maker may run again.
    const std::uint32_t needed = last ? std::min(uses[i] + 1, end - 1) : uses[i + 1];
    droppable_.push_back(!stays && repeatable(graph_.producer(t), needed));
    ends_with_read_.push_back(!last && !(awaited && i + 2 == uses.size()));
  }
}

void IntervalModel::find_last_reruns(bool gradients_again) {
  const IdVector<OpId, std::size_t> changes = first_changes(graph_);
  const std::size_t last_op = graph_.num_ops() - 1;
  for (OpId op : graph_.ops()) {
    const bool allowed = gradients_again || graph_.phase(op) == Phase::kForward;
    if (!allowed || !graph_.recomputable(op)) continue;
    last_rerun_[op] = static_cast<std::uint32_t>(std::min(changes[op], last_op));
  }
  // An op that destroys its input needs it made once more.
  for (OpId op : graph_.ops()) {
    const TensorId overwritten = graph_.overwrites(variant_[op]);
    if (!overwritten.valid()) continue;
    last_rerun_[op] = std::min(last_rerun_[op], last_rerun_[graph_.producer(overwritten)]);
  }
}

void IntervalModel::find_awaited_outputs() {
  IdVector<TensorId, std::uint32_t> last_use(graph_.num_tensors(), 0);
  std::vector<std::pair<OpId, TensorId>> awaited;
  for (OpId op : graph_.ops()) {
    for (TensorId t : reads_[op]) last_use[t] = static_cast<std::uint32_t>(op.index());
    for (TensorId t : makes_[op]) last_use[t] = static_cast<std::uint32_t>(op.index());
  }
  for (TensorId t : graph_.tensors()) {
    if (graph_.fixed(t) || graph_.kind(t) != TensorKind::kOutput || graph_.bytes(t) == 0) continue;
    const std::uint32_t stage = last_rerun_[graph_.producer(t)];
    if (stage > last_use[t] + 1) awaited.emplace_back(OpId(stage), t);
  }
  awaits_ = Csr<OpId, TensorId>::from_pairs(graph_.num_ops(), awaited);
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

Decisions IntervalModel::keep_everything() const {
  Decisions decisions(size());
  for (IntervalId g = 0; g < size(); ++g) {
    if (last(g) && droppable(g)) decisions[g] = Holding::kDropped;
  }
  return decisions;
}

Decisions IntervalModel::keep_nothing_longer() const {
  Decisions decisions = keep_everything();
  for (IntervalId g = 0; g < size(); ++g) {
    if (last(g) && droppable(g)) decisions[g] = Holding::kRecomputeEachUse;
  }
  return decisions;
}

// Goes through the ops in order and tracks what is on the device.
class IntervalModel::Walk {
 public:
  Walk(const IntervalModel& model, const Decisions& decisions)
      : model_(model),
        graph_(model.graph_),
        decisions_(decisions),
        next_drop_(decisions.early_drops().begin()),
        next_run_(decisions.early_runs().begin()),
        moves_(decisions.moves()),
        available_(graph_.num_tensors(), 0),
        current_(model.first_),
        touched_(moves_ ? graph_.num_tensors() : 0, 0),
        mark_(graph_.num_ops(), 0) {
    result_.ops.reserve(graph_.num_ops() * 2);
    result_.stage.reserve(graph_.num_ops() * 2);
    result_.returned = model.ends_;
  }

  IntervalSequence run() && {
    for (OpId op : graph_.ops()) stage(op);
    return std::move(result_);
  }

 private:
  void stage(OpId op) {
    stage_ = static_cast<std::uint32_t>(op.index());
    for (; next_drop_ != decisions_.early_drops().end() && next_drop_->stage <= op.index();
         ++next_drop_) {
      if (model_.droppable(current_[next_drop_->tensor])) available_[next_drop_->tensor] = 0;
    }
    find_missing(op);
    for (OpId again : missing_) {
      note_return(again, op);
      append(again, op);
    }
    append(op, op);
    for (TensorId t : model_.reads_[op]) enter_next_interval(t);
    for (TensorId t : model_.awaits_[op]) enter_next_interval(t);
    for (TensorId t : model_.makes_[op]) enter_interval(t);
    for (OpId again : missing_) {
      for (TensorId t : model_.makes_[again]) drop_if_unwanted(t);
    }
  }

  void append(OpId op, OpId stage) {
    if (moves_) note_uses(op);
    result_.ops.push_back(op);
    result_.stage.push_back(static_cast<std::uint32_t>(stage.index()));
    for (TensorId t : model_.makes_[op]) available_[t] = 1;
    if (!model_.overwrites_) return;
    const TensorId overwritten = graph_.overwrites(model_.variant(op));
    if (overwritten.valid()) available_[overwritten] = 0;
  }

  void note_uses(OpId op) {
    const std::size_t time = result_.ops.size();
    for (TensorId t : model_.reads_[op]) note_read(t, time);
    for (TensorId t : model_.makes_[op]) touched_[t] = time;
  }
  void note_read(TensorId t, std::size_t time) {
    const bool away = decisions_[current_[t]] == Holding::kMoved && time - touched_[t] > 1;
    if (away) result_.absences.push_back({.tensor = t, .after = touched_[t], .before = time});
    touched_[t] = time;
  }

  void note_return(OpId again, OpId stage) {
    for (TensorId t : model_.makes_[again]) {
      std::uint32_t& returned = result_.returned[current_[t]];
      if (!available_[t]) returned = std::min(returned, static_cast<std::uint32_t>(stage.index()));
    }
  }

  void enter_next_interval(TensorId t) {
    current_[t] += !model_.last(current_[t]);
    enter_interval(t);
  }
  void enter_interval(TensorId t) {
    if (!is_resident(decisions_[current_[t]])) available_[t] = 0;
  }
  // A recomputed value is held for its next use, unless the decision is kRecomputeEachUse.
  void drop_if_unwanted(TensorId t) {
    if (decisions_[current_[t]] == Holding::kRecomputeEachUse) available_[t] = 0;
  }

  // In the order of the graph, so that each finds what it reads.
  void find_missing(OpId op) {
    ++round_;
    missing_.clear();
    visit(op);
    for (TensorId t : model_.awaits_[op]) want(t);
    for (; next_run_ != decisions_.early_runs().end() && next_run_->stage <= op.index();
         ++next_run_) {
      if (is_made(next_run_->tensor, op)) want(next_run_->tensor);
    }
    for (std::size_t i = 0; i < missing_.size(); ++i) visit(missing_[i]);
    if (missing_.size() > 1) std::ranges::sort(missing_);
  }
  void visit(OpId op) {
    for (TensorId t : model_.reads_[op]) want(t);
  }
  void want(TensorId t) {
    if (available_[t]) return;
    const OpId maker = graph_.producer(t);
    if (mark_[maker] == round_) return;
    mark_[maker] = round_;
    missing_.push_back(maker);
    if (!model_.repeatable(maker, stage_)) result_.lost.push_back(t);
  }
  // Whether its maker ran before the op, and may run again.
  bool is_made(TensorId t, OpId op) const {
    return graph_.producer(t) < op && model_.repeatable(graph_.producer(t), stage_);
  }

  const IntervalModel& model_;
  const Graph& graph_;
  const Decisions& decisions_;
  std::vector<EarlyDrop>::const_iterator next_drop_;
  std::vector<EarlyRun>::const_iterator next_run_;
  const bool moves_;
  IdVector<TensorId, char> available_;
  IdVector<TensorId, IntervalId> current_;
  IdVector<TensorId, std::size_t> touched_;  // the position of its last use
  IdVector<OpId, std::uint32_t> mark_;
  std::uint32_t round_ = 0;
  std::uint32_t stage_ = 0;
  std::vector<OpId> missing_;
  IntervalSequence result_;
};

IntervalSequence IntervalModel::sequence(const Decisions& decisions) const {
  return Walk(*this, decisions).run();
}

// Follows a plan and notes what it holds, drops and moves. While the first op that has not run yet
// is `stage_`, a second making ends the absence of a value.
class IntervalModel::PlanReader {
 public:
  explicit PlanReader(const IntervalModel& model)
      : model_(model),
        graph_(model.graph_),
        decisions_(model.keep_everything()),
        here_(graph_.num_tensors(), 0),
        touched_(graph_.num_tensors(), 0),
        read_in_(graph_.num_ops(), kNever) {}

  std::optional<Decisions> read(const Plan& plan) && {
    moves_ = std::ranges::any_of(plan.steps,
                                 [](const Step& step) { return step.kind() == StepKind::kFetch; });
    for (const Step& step : plan.steps) {
      if (step.kind() != StepKind::kCompute) {
        if (step.kind() == StepKind::kFetch) fetch(step.tensor());
        here_[step.tensor()] = step.kind() != StepKind::kRelease;
        continue;
      }
      if (step.op().index() > stage_) return std::nullopt;
      compute(step);
    }
    if (stage_ != graph_.num_ops()) return std::nullopt;
    return std::move(decisions_);
  }

 private:
  static constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

  void fetch(TensorId t) {
    if (graph_.fixed(t)) return;
    Holding& holding = decisions_[model_.interval_at(t, stage_)];
    if (holding == Holding::kHeld) holding = Holding::kMoved;
  }

  void compute(const Step& step) {
    const bool first = step.op().index() == stage_;
    const VariantId variant = step.variant(graph_);
    for (TensorId t : graph_.reads(variant)) read_value(t, first);
    if (graph_.overwrites(variant).valid()) here_[graph_.overwrites(variant)] = 0;
    for (TensorId t : graph_.makes(variant)) {
      const bool was_here = std::exchange(here_[t], 1);
      if (!first && !was_here) make_again(t);
      touched_[t] = stage_;
    }
    if (!first && moves_) again_.push_back(step.op());
    if (first) end_stage();
  }

  // What ran again and was not read in this stage was run early.
  void end_stage() {
    for (const OpId op : again_) {
      if (read_in_[op] == stage_ || model_.makes(op).empty()) continue;
      decisions_.add(EarlyRun{stage_, model_.makes(op).front()});
    }
    again_.clear();
    ++stage_;
  }

  void read_value(TensorId t, bool first) {
    if (graph_.fixed(t)) return;
    read_in_[graph_.producer(t)] = stage_;
    const IntervalId g = model_.interval_at(t, stage_);
    // A re-run reads what was held after its last use.
    const bool untouched = touched_[t] == model_.interval(g).begin;
    if (!first && model_.last(g) && untouched && decisions_[g] == Holding::kDropped) {
      decisions_[g] = Holding::kHeld;
    }
    touched_[t] = stage_;
  }

  // It was not held since its last use, which began the interval or was one by a re-run.
  void make_again(TensorId t) {
    const IntervalId g = model_.interval_at(t, stage_);
    if (!model_.droppable(g)) return;
    if (touched_[t] == model_.interval(g).begin) {
      decisions_[g] = Holding::kDropped;
    } else {
      decisions_.add(EarlyDrop{touched_[t] + 1, t});
    }
    const bool awaited = !model_.ends_with_read(g) && !model_.last(g);
    if (awaited && stage_ < model_.interval(g).end) decisions_.add(EarlyRun{stage_, t});
  }

  const IntervalModel& model_;
  const Graph& graph_;
  Decisions decisions_;
  IdVector<TensorId, char> here_;
  IdVector<TensorId, std::uint32_t> touched_;  // the stage of its last use
  IdVector<OpId, std::uint32_t> read_in_;      // the stage in which its values were read last
  std::vector<OpId> again_;                    // that ran again in this stage
  bool moves_ = false;
  std::uint32_t stage_ = 0;
};

std::optional<Decisions> IntervalModel::read_plan(const Plan& plan) const {
  return PlanReader(*this).read(plan);
}

}  // namespace regen::search
