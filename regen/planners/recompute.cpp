#include "regen/planners/recompute.h"

#include <algorithm>

namespace regen {
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

// A variant that does the same as the default at no higher cost but in the storage of an input
// that nobody needs later; the default's number if there is none.
std::size_t choose_variant(const Graph& graph, OpId op, const ReverseLiveness& after) {
  const auto variants = graph.variants(op);
  const VariantId plain = variants[0];
  for (std::size_t i = 1; i < variants.size(); ++i) {
    const VariantId v = variants[i];
    const TensorId old = graph.overwrites(v);
    if (!old.valid() || after.needed(old) || graph.cost(v) > graph.cost(plain) ||
        graph.rerun_cost(v) > graph.rerun_cost(plain) ||
        graph.workspace(v) > graph.workspace(plain) ||
        graph.makes(v).size() != graph.makes(plain).size()) {
      continue;
    }
    const auto available = graph.reads(plain);
    const bool same_reads = std::ranges::all_of(graph.reads(v), [&](TensorId t) {
      return std::find(available.begin(), available.end(), t) != available.end();
    });
    if (same_reads) return i;
  }
  return 0;
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
      visit(graph_.reads(graph_.default_variant(found_[i])));
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
  for (TensorId t : graph.makes(graph.default_variant(op))) available[t] = value;
}

}  // namespace

Plan plan_from_sequence(const Graph& graph, const std::vector<OpId>& sequence) {
  Plan plan;
  std::vector<Step> reversed;
  reversed.reserve(sequence.size() * 2 + 16);
  ReverseLiveness after(graph);
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
  plan.steps.assign(reversed.rbegin(), reversed.rend());
  return plan;
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
  const auto droppable = [&](OpId op) {
    return graph.phase(op) == Phase::kForward && graph.recomputable(op) &&
           !checkpoints.checkpoint[op] && checkpoints.segment[op] != last_segment;
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
    const auto reads = graph.reads(graph.default_variant(op));
    std::uint32_t segment = UINT32_MAX;
    for (TensorId t : reads) {
      if (!available[t]) segment = std::min(segment, checkpoints.segment[graph.producer(t)]);
    }
    const std::vector<OpId>& missing = closure.missing_for(reads);
    for (OpId again : missing) {
      sequence.push_back(again);
      set_outputs(graph, again, available, true);
    }
    sequence.push_back(op);
    set_outputs(graph, op, available, true);
    for (OpId again : missing) {
      if (checkpoints.segment[again] < segment) set_outputs(graph, again, available, false);
    }
    effort.add(static_cast<std::int64_t>(missing.size()) + 1);
  }
  return sequence;
}

std::vector<OpId> keep_last_sequence(const Graph& graph, std::size_t max_steps, Effort& effort) {
  std::vector<OpId> sequence;
  IdVector<TensorId, char> available = fixed_available(graph);
  Closure closure(graph, available);
  OpId previous;
  for (OpId op : graph.ops()) {
    const std::vector<OpId> missing =
        closure.missing_for(graph.reads(graph.default_variant(op)));
    for (OpId again : missing) sequence.push_back(again);
    sequence.push_back(op);
    // An op that may not run again keeps what it made.
    if (previous.valid() && graph.recomputable(previous)) {
      set_outputs(graph, previous, available, false);
    }
    set_outputs(graph, op, available, true);
    previous = op;
    effort.add(static_cast<std::int64_t>(missing.size()) + 1);
    if (sequence.size() > max_steps || effort.exhausted()) return {};
  }
  return sequence;
}

}  // namespace regen
