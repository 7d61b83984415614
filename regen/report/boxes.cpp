#include "regen/report/boxes.h"

#include <algorithm>
#include <cstdint>

namespace regen::report {
namespace {

constexpr std::uint32_t kNowhere = UINT32_MAX;

class BoxWalk {
 public:
  BoxWalk(const Graph& graph, const Plan& plan, std::span<const Bytes> addresses)
      : graph_(graph),
        plan_(plan),
        addresses_(addresses),
        place_(graph.num_tensors(), kNowhere),
        ran_(graph.num_ops(), false) {}

  std::vector<Box> run() && {
    for (now_ = 0; now_ < plan_.steps.size(); ++now_) visit(plan_.steps[now_]);
    // What takes over another's memory counts from the step after its op: later than its place in the
    // list, and not at all where it is released at once or the plan ends.
    std::erase_if(boxes_, [](const Box& box) { return box.from == box.to; });
    std::ranges::stable_sort(boxes_, {}, &Box::from);
    return std::move(boxes_);
  }

 private:
  void visit(const Step& step) {
    switch (step.kind()) {
      case StepKind::kCompute:
        return compute(step.op(), step.variant(graph_));
      case StepKind::kFetch:
        return open(step.tensor(), Provenance::kFetch, now_, next_++);
      case StepKind::kRelease:
        return close(step.tensor(), now_);
      case StepKind::kOffload:
        return;
    }
  }

  void compute(OpId op, VariantId variant) {
    const Provenance origin = ran_[op] ? Provenance::kRecompute : Provenance::kFirstRun;
    ran_[op] = true;
    const TensorId overwritten = graph_.overwrites(variant);
    const auto makes = graph_.makes(variant);
    for (std::size_t i = overwritten.valid() ? 1 : 0; i < makes.size(); ++i) {
      if (place_[makes[i]] == kNowhere) open(makes[i], origin, now_, next_++);
    }
    if (graph_.workspace(variant) > 0) {
      add({.op = op, .from = now_, .to = now_ + 1, .allocation = next_++},
          graph_.workspace(variant));
    }
    if (!overwritten.valid()) return;
    const std::size_t allocation = boxes_[place_[overwritten]].allocation;
    close(overwritten, now_ + 1);
    open(makes[0], origin, now_ + 1, allocation);
  }

  void open(TensorId t, Provenance origin, std::size_t from, std::size_t allocation) {
    place_[t] = static_cast<std::uint32_t>(boxes_.size());
    add({.tensor = t,
         .op = graph_.producer(t),
         .origin = origin,
         .from = from,
         .to = plan_.steps.size(),
         .allocation = allocation},
        graph_.bytes(t));
  }

  void close(TensorId t, std::size_t to) {
    boxes_[place_[t]].to = to;
    place_[t] = kNowhere;
  }

  void add(Box box, Bytes bytes) {
    box.bytes = bytes;
    box.address = addresses_[box.allocation];
    boxes_.push_back(box);
  }

  const Graph& graph_;
  const Plan& plan_;
  const std::span<const Bytes> addresses_;
  std::vector<Box> boxes_;
  IdVector<TensorId, std::uint32_t> place_;  // its open box
  IdVector<OpId, bool> ran_;
  std::size_t next_ = 0;  // allocation
  std::size_t now_ = 0;
};

}  // namespace

std::vector<Box> boxes(const Graph& graph, const Plan& plan, std::span<const Bytes> addresses) {
  return BoxWalk(graph, plan, addresses).run();
}

}  // namespace regen::report
