#include "regen/execute/placement/plan_memory.h"

#include <algorithm>

#include "regen/plan/addresses.h"
#include "regen/plan/pack/pack.h"

namespace regen::execute {
namespace {

// The life of a host copy: from its offload to the first step that waits for its last fetch.
class HostCopies {
 public:
  HostCopies(const Graph& graph, const Plan& plan)
      : graph_(graph),
        plan_(plan),
        open_(graph.num_tensors(), kNone),
        waiting_(graph.num_tensors(), false) {}

  std::vector<Lifetime> lifetimes() && {
    find_last_fetches();
    const auto end = static_cast<std::int64_t>(plan_.steps.size());
    for (now_ = 0; now_ < plan_.steps.size(); ++now_) {
      const Step& step = plan_.steps[now_];
      switch (step.kind()) {
        case StepKind::kOffload:
          open_[step.tensor()] = lifetimes_.size();
          lifetimes_.push_back({static_cast<std::int64_t>(now_), end, graph_.bytes(step.tensor())});
          break;
        case StepKind::kFetch:
          waiting_[step.tensor()] = last_fetch_[now_];
          break;
        case StepKind::kRelease:
          close(step.tensor());
          break;
        case StepKind::kCompute:
          for (const TensorId t : graph_.reads(step.variant(graph_))) close(t);
          break;
      }
    }
    return std::move(lifetimes_);
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;

  // A fetch after which the same tensor is not fetched again before its next offload.
  void find_last_fetches() {
    last_fetch_.assign(plan_.steps.size(), false);
    IdVector<TensorId, bool> fetched_later(graph_.num_tensors(), false);
    for (std::size_t s = plan_.steps.size(); s-- > 0;) {
      const Step& step = plan_.steps[s];
      if (step.kind() == StepKind::kFetch) {
        last_fetch_[s] = !fetched_later[step.tensor()];
        fetched_later[step.tensor()] = true;
      } else if (step.kind() == StepKind::kOffload) {
        fetched_later[step.tensor()] = false;
      }
    }
  }

  void close(TensorId t) {
    if (!waiting_[t]) return;
    waiting_[t] = false;
    lifetimes_[open_[t]].upper = static_cast<std::int64_t>(now_) + 1;
    open_[t] = kNone;
  }

  const Graph& graph_;
  const Plan& plan_;
  std::size_t now_ = 0;
  std::vector<Lifetime> lifetimes_;
  IdVector<TensorId, std::size_t> open_;  // the lifetime of the tensor's host copy
  IdVector<TensorId, bool> waiting_;      // its last fetch is under way
  std::vector<bool> last_fetch_;
};

// The highest end of any allocation.
Bytes arena_height(const Graph& graph, const Plan& plan) {
  const std::vector<Lifetime> lifetimes = allocation_lifetimes(graph, plan);
  Bytes height = 0;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    height = std::max(height, (*plan.addresses)[i] + lifetimes[i].size);
  }
  return height;
}

}  // namespace

Status check_alignment(const Plan& plan, Bytes alignment) {
  if (!plan.addresses) return bad_input("the plan has no addresses, expected one per allocation");
  for (std::size_t i = 0; i < plan.addresses->size(); ++i) {
    if ((*plan.addresses)[i] % alignment == 0) continue;
    return bad_input("the plan's address " + std::to_string(i) + " is " +
                     std::to_string((*plan.addresses)[i]) + ", expected a multiple of " +
                     std::to_string(alignment));
  }
  return {};
}

Result<PlanMemory> plan_memory(const Graph& graph, const Plan& plan, Bytes alignment) {
  PlanMemory memory;
  memory.arena = arena_height(graph, plan);
  const std::vector<Lifetime> lifetimes = HostCopies(graph, plan).lifetimes();
  PackOptions options;
  options.alignment = alignment;
  REGEN_ASSIGN(const Packing packing, pack(lifetimes, options));
  memory.slab = packing.height;
  memory.slab_offsets = packing.offsets;
  return memory;
}

}  // namespace regen::execute
