#include "regen/plan/explain.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "regen/plan/validate.h"

namespace regen {
namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

// One stay of a tensor on the device, as far as it is known.
struct Stay {
  Provenance origin = Provenance::kFirstRun;
  std::size_t made_step = kNever;
  std::size_t counted_from = kNever;  // later than made_step if it took over another's bytes
  std::size_t next_use_step = kNever;
  std::size_t last_use_step = kNever;

  bool open() const { return made_step != kNever; }
};

std::optional<std::size_t> optional_step(std::size_t step) {
  return step == kNever ? std::nullopt : std::optional(step);
}

// Walks through the steps once; what a stay was good for is known when it ends.
class Explainer {
 public:
  Explainer(const Graph& graph, const Plan& plan, const Validation& validation)
      : graph_(graph),
        plan_(plan),
        stays_(graph.num_tensors()),
        kept_(graph.num_tensors()),
        moved_(graph.num_tensors()),
        runs_(graph.num_ops(), 0),
        recomputed_(graph.num_ops()) {
    result_.peak_bytes = validation.peak_bytes;
    result_.fixed_bytes = graph.fixed_bytes();
    result_.peak_step = validation.peak_step;
  }

  Explanation run() {
    for (now_ = 0; now_ < plan_.steps.size(); ++now_) visit(plan_.steps[now_]);
    for (TensorId t : graph_.tensors()) {
      if (stays_[t].open()) end_stay(t, now_);
    }
    collect();
    return std::move(result_);
  }

 private:
  void visit(const Step& step) {
    switch (step.kind()) {
      case StepKind::kCompute:
        return compute(step.op(), step.variant(graph_));
      case StepKind::kOffload:
        use(step.tensor());
        move(step.tensor());
        ++moved_[step.tensor()].offloads;
        return;
      case StepKind::kRelease:
        return end_stay(step.tensor(), now_);
      case StepKind::kFetch:
        begin_stay(step.tensor(), Provenance::kFetch);
        move(step.tensor());
        ++moved_[step.tensor()].fetches;
        return;
    }
  }

  void compute(OpId op, VariantId variant) {
    const bool again = runs_[op]++ > 0;
    if (again) {
      ++recomputed_[op].times;
      recomputed_[op].cost += graph_.rerun_cost(variant);
    }
    for (TensorId t : graph_.reads(variant)) use(t);
    for (TensorId t : graph_.makes(variant)) {
      if (!stays_[t].open()) begin_stay(t, again ? Provenance::kRecompute : Provenance::kFirstRun);
    }
    if (const TensorId old = graph_.overwrites(variant); old.valid()) {
      stays_[graph_.makes(variant)[0]].counted_from = now_ + 1;
      end_stay(old, now_ + 1);
    }
    if (now_ == result_.peak_step) result_.workspace_bytes = graph_.workspace(variant);
  }

  void begin_stay(TensorId t, Provenance origin) {
    stays_[t] = {.origin = origin, .made_step = now_, .counted_from = now_};
  }

  void use(TensorId t) {
    Stay& stay = stays_[t];
    if (!stay.open()) return;  // a fixed tensor
    stay.last_use_step = now_;
    if (now_ >= result_.peak_step && stay.next_use_step == kNever) stay.next_use_step = now_;
  }

  // `end` is the first step during which it is gone.
  void end_stay(TensorId t, std::size_t end) {
    const Stay stay = std::exchange(stays_[t], Stay{});
    Kept& longest = kept_[t];
    if (end - stay.made_step > longest.left_step - longest.made_step) {
      longest = {t, stay.made_step, end};
    }
    if (stay.counted_from > result_.peak_step || end <= result_.peak_step) return;
    result_.live.push_back({.tensor = t,
                            .bytes = graph_.bytes(t),
                            .origin = stay.origin,
                            .made_step = stay.made_step,
                            .next_use_step = optional_step(stay.next_use_step),
                            .last_use_step = optional_step(stay.last_use_step)});
  }

  void move(TensorId t) { moved_[t].bytes += graph_.bytes(t); }

  void collect() {
    Bytes live_bytes = 0;
    for (const LiveTensor& item : result_.live) live_bytes += item.bytes;
    result_.unused_bytes =
        result_.peak_bytes - result_.fixed_bytes - result_.workspace_bytes - live_bytes;
    for (OpId op : graph_.ops()) {
      recomputed_[op].op = op;
      if (recomputed_[op].times > 0) result_.recomputed.push_back(recomputed_[op]);
    }
    for (TensorId t : graph_.tensors()) {
      moved_[t].tensor = t;
      if (moved_[t].offloads > 0) result_.moved.push_back(moved_[t]);
      if (kept_[t].tensor.valid()) result_.kept.push_back(kept_[t]);
    }
    sort_by(result_.live, [](const auto& item) { return std::pair(-item.bytes, item.tensor); });
    sort_by(result_.recomputed, [](const auto& item) { return std::pair(-item.cost, item.op); });
    sort_by(result_.moved, [](const auto& item) { return std::pair(-item.bytes, item.tensor); });
    sort_by(result_.kept, [](const auto& item) {
      const auto length = static_cast<std::int64_t>(item.left_step - item.made_step);
      return std::pair(-length, item.tensor);
    });
  }

  template <typename List, typename Key>
  static void sort_by(List& list, Key key) {
    std::sort(list.begin(), list.end(),
              [&](const auto& a, const auto& b) { return key(a) < key(b); });
  }

  const Graph& graph_;
  const Plan& plan_;
  Explanation result_;
  std::size_t now_ = 0;
  IdVector<TensorId, Stay> stays_;
  IdVector<TensorId, Kept> kept_;
  IdVector<TensorId, Moved> moved_;
  IdVector<OpId, std::size_t> runs_;
  IdVector<OpId, Recomputed> recomputed_;
};

// What one variant needs on the device while it runs.
Bytes bytes_needed(const Graph& graph, VariantId variant) {
  Bytes bytes = graph.fixed_bytes() + graph.workspace(variant);
  for (TensorId t : graph.reads(variant)) bytes += graph.fixed(t) ? 0 : graph.bytes(t);
  for (TensorId t : graph.makes(variant)) bytes += graph.bytes(t);
  if (graph.overwrites(variant).valid()) bytes -= graph.bytes(graph.makes(variant)[0]);
  return bytes;
}

std::vector<TensorId> tensors_needed(const Graph& graph, VariantId variant) {
  std::vector<TensorId> live;
  for (TensorId t : graph.reads(variant)) {
    if (!graph.fixed(t)) live.push_back(t);
  }
  const bool in_place = graph.overwrites(variant).valid();
  const auto makes = graph.makes(variant).subspan(in_place ? 1 : 0);
  live.insert(live.end(), makes.begin(), makes.end());
  return live;
}

}  // namespace

std::string_view to_string(Provenance origin) {
  constexpr std::array<std::string_view, 3> kNames{"first run", "recompute", "fetch"};
  return kNames[static_cast<std::size_t>(origin)];
}

Explanation explain(const Graph& graph, const Plan& plan) {
  return Explainer(graph, plan, validate(graph, plan).value()).run();
}

StructuralBound structural_bound(const Graph& graph) {
  StructuralBound bound{.bytes = graph.fixed_bytes(), .fixed_bytes = graph.fixed_bytes()};
  for (TensorId t : graph.tensors()) {
    if (graph.kind(t) != TensorKind::kOutput) continue;
    bound.bytes += graph.bytes(t);
    bound.live.push_back(t);
  }
  for (OpId op : graph.ops()) {
    VariantId least = graph.default_variant(op);
    for (VariantId v : graph.variants(op)) {
      if (bytes_needed(graph, v) < bytes_needed(graph, least)) least = v;
    }
    const Bytes bytes = bytes_needed(graph, least);
    if (bytes > bound.bytes || (bytes == bound.bytes && !bound.op.valid())) {
      bound.bytes = bytes;
      bound.op = op;
      bound.variant = least;
    }
  }
  if (bound.op.valid()) {
    bound.workspace_bytes = graph.workspace(bound.variant);
    bound.live = tensors_needed(graph, bound.variant);
  }
  std::stable_sort(bound.live.begin(), bound.live.end(),
                   [&](TensorId a, TensorId b) { return graph.bytes(a) > graph.bytes(b); });
  return bound;
}

Infeasibility explain_infeasible(const Graph& graph, Bytes budget) {
  Infeasibility result{.budget = budget, .bound = structural_bound(graph)};
  result.proven = budget < result.bound.bytes;
  const std::string need = to_text(graph, result.bound);
  if (result.proven) {
    const Bytes lacking = result.bound.bytes - budget;
    const std::string room = budget < 0 ? "what is left of the budget: it is exceeded by " +
                                              format_grouped(-budget) + " bytes without the plan"
                                        : format_grouped(budget) + " bytes";
    result.message = "no plan fits into " + room + ": " + need + ", " + format_grouped(lacking) +
                     (lacking == 1 ? " byte" : " bytes") + " over the budget";
  } else {
    result.message = "a budget of " + format_grouped(budget) + " bytes is not ruled out: " + need;
  }
  return result;
}

}  // namespace regen
