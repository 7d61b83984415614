#include "regen/planners/movement.h"

#include <algorithm>
#include <deque>

namespace regen {
namespace {

constexpr std::size_t kNever = SIZE_MAX;

// When a tensor is away at most: between two computes, counted over the computes of the plan.
struct Absence {
  std::size_t after = kNever;   // its last use in the forward pass
  std::size_t before = kNever;  // its first use later
  bool made_again = false;

  bool worthwhile() const {
    return !made_again && after != kNever && before != kNever && before - after > 1;
  }
};

IdVector<TensorId, Absence> absences(const Graph& graph, const std::vector<Step>& steps, OpId turn,
                                     const IdVector<TensorId, char>& leaves) {
  IdVector<TensorId, Absence> found(graph.num_tensors());
  std::size_t time = 0;
  bool forward = true;
  for (const Step& step : steps) {
    if (step.kind() != StepKind::kCompute) continue;
    if (step.op() == turn) forward = false;
    const VariantId variant = step.variant(graph);
    for (TensorId t : graph.makes(variant)) {
      if (found[t].after != kNever || !forward) found[t].made_again = true;
      found[t].after = time;
    }
    for (TensorId t : graph.reads(variant)) {
      if (forward) found[t].after = time;
      if (!forward && found[t].before == kNever) found[t].before = time;
    }
    ++time;
  }
  for (TensorId t : graph.tensors()) {
    if (!leaves[t] || graph.fixed(t) || !found[t].worthwhile()) found[t] = {};
  }
  return found;
}

class Mover {
 public:
  Mover(const Graph& graph, IdVector<TensorId, Absence> absences, Bytes limit)
      : graph_(graph),
        absences_(std::move(absences)),
        limit_(limit),
        place_(graph.num_tensors(), Place::kElsewhere),
        moved_(graph.num_tensors(), 0),
        live_(graph.fixed_bytes()) {
    result_.peak_bytes = live_;
  }

  MovedSteps run(const std::vector<Step>& steps) {
    result_.steps.reserve(steps.size() * 3 / 2);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind() == StepKind::kRelease) {
        release(steps[i].tensor());
      } else {
        compute(steps[i], next_compute(steps, i));
      }
    }
    forget_idle_offloads();
    return std::move(result_);
  }

 private:
  enum class Place : char { kElsewhere, kDevice, kMayLeave };

  static const Step* next_compute(const std::vector<Step>& steps, std::size_t i) {
    while (++i < steps.size()) {
      if (steps[i].kind() == StepKind::kCompute) return &steps[i];
    }
    return nullptr;
  }

  void compute(const Step& step, const Step* next) {
    const VariantId variant = step.variant(graph_);
    const Bytes new_bytes = bytes_taken(variant);
    make_room(bytes_to_fetch(variant) + new_bytes);
    fetch_for(variant);
    if (next != nullptr) fetch_ahead(next->variant(graph_), new_bytes);
    result_.peak_bytes = std::max(result_.peak_bytes, live_ + new_bytes);
    result_.steps.push_back(step);
    make_outputs(variant);
    let_leave(graph_.makes(variant));
    let_leave(graph_.reads(variant));
    ++time_;
  }

  bool returns_now(TensorId t) const { return absences_[t].before == time_; }

  // What the compute takes beyond what is on the device.
  Bytes bytes_taken(VariantId variant) const {
    const bool takes_over = graph_.overwrites(variant).valid();
    Bytes sum = graph_.workspace(variant);
    for (TensorId t : graph_.makes(variant).subspan(takes_over ? 1 : 0)) {
      if (place_[t] == Place::kElsewhere) sum += graph_.bytes(t);
    }
    return sum;
  }

  // A value that has not left by now stays.
  Bytes bytes_to_fetch(VariantId variant) {
    Bytes sum = 0;
    for (TensorId t : graph_.reads(variant)) {
      if (!returns_now(t)) continue;
      if (place_[t] == Place::kElsewhere) sum += graph_.bytes(t);
      if (place_[t] == Place::kMayLeave) place_[t] = Place::kDevice;
    }
    return sum;
  }

  void fetch_for(VariantId variant) {
    for (TensorId t : graph_.reads(variant)) {
      if (returns_now(t) && place_[t] == Place::kElsewhere) fetch(t);
    }
  }

  // For the compute after this one, which takes `new_bytes`.
  void fetch_ahead(VariantId next, Bytes new_bytes) {
    for (TensorId t : graph_.reads(next)) {
      if (absences_[t].before != time_ + 1 || place_[t] != Place::kElsewhere) continue;
      if (live_ + graph_.bytes(t) + new_bytes <= limit_) fetch(t);
    }
  }

  void make_outputs(VariantId variant) {
    const TensorId overwritten = graph_.overwrites(variant);
    if (overwritten.valid()) leave(overwritten);
    for (TensorId t : graph_.makes(variant)) {
      if (place_[t] == Place::kElsewhere) arrive(t);
      if (absences_[t].after != kNever) result_.steps.push_back(Step::offload(t));
    }
  }

  void let_leave(std::span<const TensorId> tensors) {
    for (TensorId t : tensors) {
      if (absences_[t].after != time_ || place_[t] != Place::kDevice) continue;
      place_[t] = Place::kMayLeave;
      waiting_.push_back(t);
    }
  }

  // The first to be offloaded goes first: its copy is the likeliest to have ended.
  void make_room(Bytes bytes) {
    while (live_ + bytes > limit_ && !waiting_.empty()) {
      const TensorId t = waiting_.front();
      waiting_.pop_front();
      if (place_[t] != Place::kMayLeave) continue;
      release(t);
      moved_[t] = 1;
      ++result_.moved;
      result_.moved_bytes += graph_.bytes(t);
    }
  }

  void release(TensorId t) {
    result_.steps.push_back(Step::release(t));
    leave(t);
  }
  void fetch(TensorId t) {
    result_.steps.push_back(Step::fetch(t));
    arrive(t);
  }
  void leave(TensorId t) {
    place_[t] = Place::kElsewhere;
    live_ -= graph_.bytes(t);
  }
  void arrive(TensorId t) {
    place_[t] = Place::kDevice;
    live_ += graph_.bytes(t);
    result_.peak_bytes = std::max(result_.peak_bytes, live_);
  }

  void forget_idle_offloads() {
    std::erase_if(result_.steps, [&](const Step& step) {
      return step.kind() == StepKind::kOffload && !moved_[step.tensor()];
    });
  }

  const Graph& graph_;
  const IdVector<TensorId, Absence> absences_;
  const Bytes limit_;
  IdVector<TensorId, Place> place_;
  IdVector<TensorId, char> moved_;
  std::deque<TensorId> waiting_;  // those that may leave, and some that may no longer
  MovedSteps result_;
  Bytes live_ = 0;
  std::size_t time_ = 0;  // computes so far
};

}  // namespace

MovedSteps move_tensors(const Graph& graph, const std::vector<Step>& steps, OpId turn,
                        const IdVector<TensorId, char>& leaves, Bytes limit) {
  return Mover(graph, absences(graph, steps, turn, leaves), limit).run(steps);
}

}  // namespace regen
