#include "regen/planners/movement.h"

#include <algorithm>
#include <deque>

#include "regen/planners/fetch_ahead.h"

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
        left_(graph.num_tensors(), kNever),
        ran_(graph.num_ops(), 0),
        live_(graph.fixed_bytes()) {}

  MovedSteps run(const std::vector<Step>& steps, double fetch_bandwidth) {
    steps_.reserve(steps.size() * 3 / 2);
    for (const Step& step : steps) {
      if (step.kind() == StepKind::kRelease) {
        release(step.tensor());
      } else {
        compute(step);
      }
    }
    if (!returns_.empty()) {
      fetch_ahead(graph_, fetch_bandwidth, limit_, computes_, returns_);
    }
    return result();
  }

 private:
  enum class Place : char { kElsewhere, kDevice, kMayLeave };

  void compute(const Step& step) {
    const VariantId variant = step.variant(graph_);
    const Bytes new_bytes = bytes_taken(variant);
    make_room(bytes_to_fetch(variant) + new_bytes);
    fetch_for(variant);
    computes_.start.push_back(clock_);
    computes_.bytes.push_back(live_ + new_bytes);
    clock_ += ran_[step.op()] ? graph_.rerun_cost(variant) : graph_.cost(variant);
    ran_[step.op()] = 1;
    steps_.push_back(step);
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

  // The fetch is put into the list at the end, when it is known how far ahead it can be.
  void fetch_for(VariantId variant) {
    for (TensorId t : graph_.reads(variant)) {
      if (!returns_now(t) || place_[t] != Place::kElsewhere) continue;
      returns_.push_back({.tensor = t, .earliest = std::min(left_[t] + 1, time_), .used = time_});
      arrive(t);
    }
  }

  void make_outputs(VariantId variant) {
    const TensorId overwritten = graph_.overwrites(variant);
    if (overwritten.valid()) leave(overwritten);
    for (TensorId t : graph_.makes(variant)) {
      if (place_[t] == Place::kElsewhere) arrive(t);
      if (absences_[t].after != kNever) steps_.push_back(Step::offload(t));
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
      left_[t] = time_;
    }
  }

  void release(TensorId t) {
    steps_.push_back(Step::release(t));
    leave(t);
  }
  void leave(TensorId t) {
    place_[t] = Place::kElsewhere;
    live_ -= graph_.bytes(t);
  }
  void arrive(TensorId t) {
    place_[t] = Place::kDevice;
    live_ += graph_.bytes(t);
  }

  // The steps with the fetches where they belong, and without the offloads of what never left.
  MovedSteps result() {
    std::ranges::stable_sort(returns_, {}, &Return::fetched);
    MovedSteps result{.peak_bytes = graph_.fixed_bytes(), .moved = returns_.size()};
    result.steps.reserve(steps_.size() + returns_.size());
    std::size_t time = 0;
    auto next = returns_.begin();
    for (const Step& step : steps_) {
      if (step.kind() == StepKind::kOffload && left_[step.tensor()] == kNever) continue;
      if (step.kind() == StepKind::kCompute) {
        for (; next != returns_.end() && next->fetched == time; ++next) {
          result.steps.push_back(Step::fetch(next->tensor));
        }
        ++time;
      }
      result.steps.push_back(step);
    }
    for (Bytes bytes : computes_.bytes) result.peak_bytes = std::max(result.peak_bytes, bytes);
    return result;
  }

  const Graph& graph_;
  const IdVector<TensorId, Absence> absences_;
  const Bytes limit_;
  IdVector<TensorId, Place> place_;
  IdVector<TensorId, std::size_t> left_;  // before which compute it was released to move
  IdVector<OpId, char> ran_;
  std::deque<TensorId> waiting_;  // those that may leave, and some that may no longer
  std::vector<Step> steps_;       // without fetches
  std::vector<Return> returns_;
  ComputeTimes computes_;
  Bytes live_ = 0;
  double clock_ = 0;
  std::size_t time_ = 0;  // computes so far
};

}  // namespace

MovedSteps move_tensors(const Graph& graph, const std::vector<Step>& steps, OpId turn,
                        const IdVector<TensorId, char>& leaves, const Link& link, Bytes limit) {
  return Mover(graph, absences(graph, steps, turn, leaves), limit).run(steps, link.to_device);
}

}  // namespace regen
