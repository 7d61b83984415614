#include "regen/search/build/sequence.h"

#include <algorithm>

namespace regen::search {
namespace {

// Which tensors the steps after the present one still need, while walking backwards.
class ReverseLiveness {
 public:
  explicit ReverseLiveness(const Graph& graph) : graph_(graph), needed_(graph.num_tensors(), 0) {
    for (TensorId t : graph.tensors()) {
      needed_[t] = graph.fixed(t) || graph.kind(t) == TensorKind::kOutput;
    }
  }
  bool needed(TensorId t) const { return needed_[t] != 0; }
  void make(TensorId t) { needed_[t] = 0; }
  void read(TensorId t) { needed_[t] = 1; }

 private:
  const Graph& graph_;
  IdVector<TensorId, char> needed_;
};

std::size_t base_choice(const Graph& graph, OpId op) {
  const auto variants = graph.variants(op);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (!graph.overwrites(variants[i]).valid()) return i;
  }
  return 0;
}

// A variant that does the work of the base variant in the storage of an input without later use;
// the base variant's number if there is none.
std::size_t choose_variant(const Graph& graph, OpId op, const ReverseLiveness& after) {
  const auto variants = graph.variants(op);
  const std::size_t base = base_choice(graph, op);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const TensorId old = graph.overwrites(variants[i]);
    if (old.valid() && !after.needed(old) && can_replace(graph, variants[i], variants[base])) {
      return i;
    }
  }
  return base;
}

// The missing ops that must run, in id order, before `reads` are all available.
class Closure {
 public:
  Closure(const Graph& graph, const IdVector<TensorId, char>& available)
      : graph_(graph), available_(available), mark_(graph.num_ops(), 0) {}

  const std::vector<OpId>& missing_for(std::span<const TensorId> reads) {
    ++round_;
    found_.clear();
    visit(reads);
    for (std::size_t i = 0; i < found_.size(); ++i) {
      visit(graph_.reads(base_variant(graph_, found_[i])));
    }
    std::sort(found_.begin(), found_.end());
    return found_;
  }

 private:
  void visit(std::span<const TensorId> reads) {
    for (TensorId t : reads) {
      if (available_[t]) continue;
      const OpId maker = graph_.producer(t);
      if (mark_[maker] == round_) continue;
      mark_[maker] = round_;
      found_.push_back(maker);
    }
  }

  const Graph& graph_;
  const IdVector<TensorId, char>& available_;
  IdVector<OpId, std::uint32_t> mark_;
  std::vector<OpId> found_;
  std::uint32_t round_ = 0;
};

IdVector<TensorId, char> fixed_available(const Graph& graph) {
  IdVector<TensorId, char> available(graph.num_tensors(), 0);
  for (TensorId t : graph.tensors()) available[t] = graph.fixed(t);
  return available;
}

void set_outputs(const Graph& graph, OpId op, IdVector<TensorId, char>& available, bool value) {
  for (TensorId t : graph.makes(base_variant(graph, op))) available[t] = value;
}

void run(const Graph& graph, OpId op, IdVector<TensorId, char>& available) {
  set_outputs(graph, op, available, true);
  const TensorId overwritten = graph.overwrites(base_variant(graph, op));
  if (overwritten.valid()) available[overwritten] = false;
}

}  // namespace

VariantId base_variant(const Graph& graph, OpId op) {
  return graph.variants(op)[base_choice(graph, op)];
}

bool can_replace(const Graph& graph, VariantId v, VariantId base) {
  const auto known = graph.reads(base);
  return graph.cost(v) <= graph.cost(base) && graph.rerun_cost(v) <= graph.rerun_cost(base) &&
         graph.workspace(v) <= graph.workspace(base) &&
         std::ranges::equal(graph.makes(v), graph.makes(base)) &&
         std::ranges::all_of(graph.reads(v), [&](TensorId t) {
           return std::find(known.begin(), known.end(), t) != known.end();
         });
}

Status check_sequences_possible(const Graph& graph) {
  for (OpId op : graph.ops()) {
    const TensorId old = graph.overwrites(base_variant(graph, op));
    if (!old.valid()) continue;
    if (graph.consumers(old).size() > 1 || graph.kind(old) == TensorKind::kOutput) {
      return limit_reached(
          "op " + std::to_string(op.index()) + " '" + graph.name(op) + "' overwrites tensor " +
          std::to_string(old.index()) + " '" + graph.name(old) +
          "' in every variant while others need it, which this planner cannot handle");
    }
  }
  return {};
}

std::vector<Step> steps_of_part(const Graph& graph, std::span<const OpId> sequence,
                                std::span<const TensorId> needed_after) {
  std::vector<Step> reversed;
  reversed.reserve(sequence.size() * 2 + 16);
  ReverseLiveness after(graph);
  for (TensorId t : needed_after) after.read(t);
  for (std::size_t i = sequence.size(); i-- > 0;) {
    const OpId op = sequence[i];
    const std::size_t choice = choose_variant(graph, op, after);
    const VariantId variant = graph.variants(op)[choice];
    const TensorId overwritten = graph.overwrites(variant);
    for (TensorId t : graph.makes(variant)) {
      if (!after.needed(t)) reversed.push_back(Step::release(t));
      after.make(t);
    }
    for (TensorId t : graph.reads(variant)) {
      if (!after.needed(t) && t != overwritten) reversed.push_back(Step::release(t));
      after.read(t);
    }
    reversed.push_back(Step::compute(op, choice));
  }
  std::ranges::reverse(reversed);
  return reversed;
}

Plan plan_from_sequence(const Graph& graph, const std::vector<OpId>& sequence) {
  Plan plan;
  plan.steps = steps_of_part(graph, sequence, {});
  return plan;
}

IdVector<OpId, std::size_t> first_changes(const Graph& graph) {
  IdVector<TensorId, std::size_t> changed_by(graph.num_tensors(), SIZE_MAX);
  for (OpId op : graph.ops()) {
    for (TensorId t : graph.mutates(op)) {
      changed_by[t] = std::min(changed_by[t], op.index());
    }
  }
  IdVector<OpId, std::size_t> changes(graph.num_ops(), SIZE_MAX);
  for (OpId op : graph.ops()) {
    for (TensorId t : graph.inputs(op)) changes[op] = std::min(changes[op], changed_by[t]);
  }
  return changes;
}

namespace {

// The last op for which an op might run again: a reader of its outputs, or one for which such a
// reader might run again.
std::size_t last_call(const Graph& graph, OpId op, const IdVector<OpId, char>& repeatable,
                      const IdVector<OpId, std::size_t>& last_calls) {
  std::size_t last = 0;
  for (TensorId t : graph.makes(base_variant(graph, op))) {
    for (OpId reader : graph.consumers(t)) {
      last = std::max(last, reader.index());
      if (repeatable[reader]) last = std::max(last, last_calls[reader]);
    }
  }
  return last;
}

// Marks ops that can run again for all their readers, from the last to the first. `changes`: the
// op by which something is changed that each op needs for that.
void mark_repeatable(const Graph& graph, const IdVector<OpId, std::size_t>& changes, bool forward,
                     IdVector<OpId, char>& repeatable) {
  IdVector<OpId, std::size_t> last_calls(graph.num_ops(), 0);
  for (std::size_t i = graph.num_ops(); i-- > 0;) {
    const OpId op(i);
    last_calls[op] = last_call(graph, op, repeatable, last_calls);
    if ((graph.phase(op) == Phase::kForward) != forward) continue;
    repeatable[op] = graph.recomputable(op) && changes[op] > last_calls[op];
  }
}

// The same with what an op needs through those that would run again before it.
IdVector<OpId, std::size_t> first_changes_above(const Graph& graph,
                                                IdVector<OpId, std::size_t> changes,
                                                const IdVector<OpId, char>& repeatable) {
  for (OpId op : graph.ops()) {
    for (TensorId t : graph.inputs(op)) {
      const OpId maker = graph.producer(t);
      if (!maker.valid()) continue;
      if (graph.phase(maker) == Phase::kForward && !repeatable[maker]) continue;
      changes[op] = std::min(changes[op], changes[maker]);
    }
  }
  return changes;
}

}  // namespace

std::vector<OpId> sequence_of(const Plan& plan) {
  std::vector<OpId> sequence;
  for (const Step& step : plan.steps) {
    if (step.kind() == StepKind::kCompute) sequence.push_back(step.op());
  }
  return sequence;
}

// Forward ops come first: an update changes what they read, and a gradient that is wanted after it
// could otherwise forbid to run them again at all.
IdVector<OpId, char> repeatable_ops(const Graph& graph, bool forward_only) {
  IdVector<OpId, char> repeatable(graph.num_ops(), 0);
  const IdVector<OpId, std::size_t> changes = first_changes(graph);
  mark_repeatable(graph, changes, /*forward=*/true, repeatable);
  if (!forward_only) {
    mark_repeatable(graph, first_changes_above(graph, changes, repeatable), /*forward=*/false,
                    repeatable);
  }
  // An op that destroys its input needs it made once more.
  for (OpId op : graph.ops()) {
    const TensorId overwritten = graph.overwrites(base_variant(graph, op));
    if (overwritten.valid() && !repeatable[graph.producer(overwritten)]) repeatable[op] = 0;
  }
  return repeatable;
}

Checkpoints make_checkpoints(const Graph& graph, const std::vector<OpId>& marked) {
  Checkpoints result{.checkpoint = IdVector<OpId, bool>(graph.num_ops(), false),
                     .segment = IdVector<OpId, std::uint32_t>(graph.num_ops(), 0)};
  for (OpId op : marked) result.checkpoint[op] = true;
  std::uint32_t segment = 0;
  for (OpId op : graph.ops()) {
    result.segment[op] = segment;
    if (result.checkpoint[op]) ++segment;
  }
  return result;
}

std::vector<OpId> recompute_sequence(const Graph& graph, const Checkpoints& checkpoints,
                                     Effort& effort) {
  std::vector<OpId> sequence;
  sequence.reserve(graph.num_ops() * 2);
  IdVector<TensorId, char> available = fixed_available(graph);
  Closure closure(graph, available);

  std::uint32_t last_segment = 0;
  for (OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::kForward) last_segment = checkpoints.segment[op];
  }
  const IdVector<OpId, char> repeatable = repeatable_ops(graph, /*forward_only=*/true);
  const auto droppable = [&](OpId op) {
    return repeatable[op] && !checkpoints.checkpoint[op] && checkpoints.segment[op] != last_segment;
  };
  // A forward value is dropped when the forward pass is over; plan_from_sequence then releases
  // it where it was last used.
  bool forward = true;
  for (OpId op : graph.ops()) {
    if (forward && graph.phase(op) != Phase::kForward) {
      forward = false;
      for (OpId done : graph.ops()) {
        if (done < op && droppable(done)) set_outputs(graph, done, available, false);
      }
    }
    const auto reads = graph.reads(base_variant(graph, op));
    std::uint32_t segment = UINT32_MAX;
    for (TensorId t : reads) {
      if (!available[t]) segment = std::min(segment, checkpoints.segment[graph.producer(t)]);
    }
    const std::vector<OpId>& missing = closure.missing_for(reads);
    for (OpId again : missing) {
      sequence.push_back(again);
      run(graph, again, available);
    }
    sequence.push_back(op);
    run(graph, op, available);
    for (OpId again : missing) {
      if (checkpoints.segment[again] < segment) set_outputs(graph, again, available, false);
    }
    effort.add(static_cast<std::int64_t>(missing.size()) + 1);
  }
  return sequence;
}

}  // namespace regen::search
