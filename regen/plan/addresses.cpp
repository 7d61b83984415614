#include "regen/plan/addresses.h"

namespace regen {
namespace {

constexpr std::uint32_t kNowhere = UINT32_MAX;

class LifetimeWalk {
 public:
  LifetimeWalk(const Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), place_(graph.num_tensors(), kNowhere) {}

  std::vector<Lifetime> run() && {
    const auto end = static_cast<std::int64_t>(plan_.steps.size());
    for (now_ = 0; now_ < end; ++now_) {
      const Step& step = plan_.steps[static_cast<std::size_t>(now_)];
      switch (step.kind()) {
        case StepKind::kCompute:
          compute(step.variant(graph_));
          break;
        case StepKind::kFetch:
          allocate(step.tensor(), end);
          break;
        case StepKind::kRelease:
          release(step.tensor());
          break;
        case StepKind::kOffload:
          break;
      }
    }
    return std::move(lifetimes_);
  }

 private:
  void compute(VariantId variant) {
    const auto end = static_cast<std::int64_t>(plan_.steps.size());
    const TensorId overwritten = graph_.overwrites(variant);
    const auto makes = graph_.makes(variant);
    if (overwritten.valid()) {
      place_[makes[0]] = place_[overwritten];
      place_[overwritten] = kNowhere;
    }
    for (TensorId t : makes) {
      if (place_[t] == kNowhere) allocate(t, end);
    }
    if (graph_.workspace(variant) > 0) {
      lifetimes_.push_back({now_, now_ + 1, graph_.workspace(variant)});
    }
  }

  void allocate(TensorId t, std::int64_t until) {
    place_[t] = static_cast<std::uint32_t>(lifetimes_.size());
    lifetimes_.push_back({now_, until, graph_.bytes(t)});
  }

  void release(TensorId t) {
    lifetimes_[place_[t]].upper = now_;
    place_[t] = kNowhere;
  }

  const Graph& graph_;
  const Plan& plan_;
  IdVector<TensorId, std::uint32_t> place_;
  std::vector<Lifetime> lifetimes_;
  std::int64_t now_ = 0;
};

}  // namespace

std::vector<Lifetime> allocation_lifetimes(const Graph& graph, const Plan& plan) {
  return LifetimeWalk(graph, plan).run();
}

Result<AddressedPlan> with_addresses(const Graph& graph, const Plan& plan,
                                     const PackOptions& options) {
  const std::vector<Lifetime> lifetimes = allocation_lifetimes(graph, plan);
  AddressedPlan result{.plan = plan};
  REGEN_ASSIGN(result.packing, pack(lifetimes, options));
  if (result.packing.status != PackStatus::kPacked) {
    const std::string numbers = "the plan's tensors need " + format_grouped(result.packing.height) +
                                " bytes of addresses, the capacity is " +
                                format_grouped(*options.capacity);
    return result.packing.status == PackStatus::kInfeasible
               ? infeasible(numbers + ": proven impossible")
               : limit_reached(numbers + ": a search limit was reached");
  }
  result.plan.addresses = result.packing.offsets;
  return result;
}

}  // namespace regen
