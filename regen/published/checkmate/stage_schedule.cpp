#include "regen/published/checkmate/stage_schedule.h"

#include <algorithm>

#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

// S as the stages pass: which tensors are kept at the start of the present stage.
class KeptNow {
 public:
  KeptNow(const Graph& graph, const StageSchedule& schedule)
      : now_(graph.num_tensors(), 0), starts_(schedule.num_stages()), ends_(schedule.num_stages()) {
    for (TensorId t : graph.tensors()) {
      for (const StageInterval& interval : schedule.kept(t)) {
        starts_[interval.first].push_back(t);
        ends_[interval.last].push_back(t);
      }
    }
  }

  // Call with 0, 1, 2, ... in this order.
  void enter(std::size_t stage) {
    if (stage > 0) {
      for (TensorId t : ends_[stage - 1]) now_[t] = 0;
    }
    if (stage < starts_.size()) {
      for (TensorId t : starts_[stage]) now_[t] = 1;
    }
  }
  bool kept(TensorId t) const { return now_[t] != 0; }
  // Kept at the start of `stage`, but not at the start of the next.
  const std::vector<TensorId>& ending(std::size_t stage) const { return ends_[stage]; }
  const std::vector<TensorId>& starting(std::size_t stage) const { return starts_[stage]; }

 private:
  IdVector<TensorId, char> now_;
  std::vector<std::vector<TensorId>> starts_;
  std::vector<std::vector<TensorId>> ends_;
};

}  // namespace

StageSchedule::StageSchedule(const Graph& graph)
    : graph_(graph), kept_(graph.num_tensors()), computed_(graph.num_ops()) {}

void StageSchedule::keep(TensorId tensor, std::int64_t first, std::int64_t last) {
  first = std::max<std::int64_t>(first, 0);
  last = std::min<std::int64_t>(last, static_cast<std::int64_t>(num_stages()) - 1);
  if (first > last) return;
  kept_[tensor].push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last)});
}

void StageSchedule::merge_intervals() {
  for (auto& intervals : kept_) {
    if (intervals.size() < 2) continue;
    std::sort(intervals.begin(), intervals.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::size_t merged = 0;
    for (std::size_t i = 1; i < intervals.size(); ++i) {
      if (intervals[i].first <= intervals[merged].last + 1) {
        intervals[merged].last = std::max(intervals[merged].last, intervals[i].last);
      } else {
        intervals[++merged] = intervals[i];
      }
    }
    intervals.resize(merged + 1);
  }
}

void StageSchedule::complete() {
  merge_intervals();
  KeptNow kept(graph_, *this);
  IdVector<OpId, std::uint32_t> mark(graph_.num_ops(), UINT32_MAX);
  std::vector<OpId> pending;
  for (std::size_t stage = 0; stage < num_stages(); ++stage) {
    kept.enter(stage);
    const auto want = [&](OpId op) {
      if (mark[op] == stage) return;
      mark[op] = static_cast<std::uint32_t>(stage);
      pending.push_back(op);
    };
    want(OpId(stage));
    if (stage + 1 < num_stages()) {
      for (TensorId t : kept.starting(stage + 1)) want(graph_.producer(t));
    }
    std::vector<OpId>& computed = computed_[stage];
    computed.clear();
    while (!pending.empty()) {
      const OpId op = pending.back();
      pending.pop_back();
      computed.push_back(op);
      for (TensorId t : graph_.reads(search::base_variant(graph_, op))) {
        if (graph_.producer(t).valid() && !kept.kept(t)) want(graph_.producer(t));
      }
    }
    std::sort(computed.begin(), computed.end());
  }
}

std::vector<OpId> StageSchedule::sequence() const {
  std::vector<OpId> all;
  for (const std::vector<OpId>& ops : computed_) all.insert(all.end(), ops.begin(), ops.end());
  return all;
}

Plan StageSchedule::compile() const {
  Plan plan;
  KeptNow next(graph_, *this);  // one stage ahead: what the present stage must hand on
  next.enter(0);
  IdVector<TensorId, OpId> last_use(graph_.num_tensors());
  for (std::size_t stage = 0; stage < num_stages(); ++stage) {
    next.enter(stage + 1);
    for (OpId op : computed_[stage]) {
      for (TensorId t : graph_.makes(search::base_variant(graph_, op))) last_use[t] = op;
      for (TensorId t : graph_.reads(search::base_variant(graph_, op))) last_use[t] = op;
    }
    for (TensorId t : next.ending(stage)) {
      if (!last_use[t].valid()) plan.steps.push_back(Step::release(t));
    }
    for (OpId op : computed_[stage]) {
      plan.steps.push_back(Step::compute(op));
      const auto release_if_done = [&](TensorId t) {
        const bool carried = next.kept(t) || graph_.fixed(t) ||
                             (stage + 1 == num_stages() && graph_.kind(t) == TensorKind::kOutput);
        if (last_use[t] == op && !carried) plan.steps.push_back(Step::release(t));
      };
      for (TensorId t : graph_.reads(search::base_variant(graph_, op))) release_if_done(t);
      for (TensorId t : graph_.makes(search::base_variant(graph_, op))) release_if_done(t);
    }
    for (OpId op : computed_[stage]) {
      for (TensorId t : graph_.makes(search::base_variant(graph_, op))) last_use[t] = OpId::none();
      for (TensorId t : graph_.reads(search::base_variant(graph_, op))) last_use[t] = OpId::none();
    }
  }
  return plan;
}

}  // namespace regen::published
