#include "regen/search/build/movement.h"

#include <algorithm>
#include <deque>

#include "regen/search/build/fetch_ahead.h"

namespace regen::search {
namespace {

constexpr std::size_t kNever = SIZE_MAX;

// A tensor's uses on the two sides of the turn.
struct Rest {
  std::size_t after = kNever;   // its last use in the forward pass
  std::size_t before = kNever;  // its first use later
  bool made_again = false;

  bool worthwhile() const {
    return !made_again && after != kNever && before != kNever && before - after > 1;
  }
};

IdVector<TensorId, Rest> rests_over_turn(const Graph& graph, const std::vector<Step>& steps,
                                         OpId turn) {
  IdVector<TensorId, Rest> found(graph.num_tensors());
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
  return found;
}

class Mover {
 public:
  Mover(const Graph& graph, const std::vector<Absence>& absences, Bytes limit, Bytes host_limit)
      : graph_(graph),
        limit_(limit),
        host_room_(host_limit),
        place_(graph.num_tensors(), Place::kElsewhere),
        trips_(graph.num_tensors()),
        ran_(graph.num_ops(), 0),
        live_(graph.fixed_bytes()) {
    for (const Absence& absence : absences) trips_[absence.tensor].push_back(absence);
  }

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

  // A tensor's absences, the present or next one of them, and what became of it.
  struct Trips : std::vector<Absence> {
    std::size_t present = 0;
    std::size_t left = kNever;  // before which compute it was released in the present one
    bool offloaded = false;
    bool ever_left = false;

    const Absence* now() const { return present < size() ? data() + present : nullptr; }
  };

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
    end_absences(variant);
    make_outputs(variant);
    let_leave(graph_.makes(variant));
    let_leave(graph_.reads(variant));
    ++time_;
  }

  bool returns_now(TensorId t) const {
    const Absence* absence = trips_[t].now();
    return absence != nullptr && absence->before == time_;
  }

  void end_absences(VariantId variant) {
    for (TensorId t : graph_.reads(variant)) {
      if (!returns_now(t)) continue;
      ++trips_[t].present;
      trips_[t].left = kNever;
    }
  }

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
      const Trips& trips = trips_[t];
      returns_.push_back({.tensor = t,
                          .earliest = std::min(trips.left + 1, time_),
                          .used = time_,
                          .lead = trips.now()->lead});
      arrive(t);
    }
  }

  void make_outputs(VariantId variant) {
    const TensorId overwritten = graph_.overwrites(variant);
    if (overwritten.valid()) leave(overwritten);
    for (TensorId t : graph_.makes(variant)) {
      if (place_[t] == Place::kElsewhere) arrive(t);
      if (trips_[t].empty() || trips_[t].offloaded) continue;
      trips_[t].offloaded = true;
      steps_.push_back(Step::offload(t));
    }
  }

  void let_leave(std::span<const TensorId> tensors) {
    for (TensorId t : tensors) {
      const Absence* absence = trips_[t].now();
      if (absence == nullptr || absence->after != time_ || place_[t] != Place::kDevice) continue;
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
      if (!trips_[t].ever_left) {
        if (graph_.bytes(t) > host_room_) continue;
        host_room_ -= graph_.bytes(t);
      }
      release(t);
      trips_[t].left = time_;
      trips_[t].ever_left = true;
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
      if (step.kind() == StepKind::kOffload && !trips_[step.tensor()].ever_left) continue;
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
  const Bytes limit_;
  Bytes host_room_;
  IdVector<TensorId, Place> place_;
  IdVector<TensorId, Trips> trips_;
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

MovedSteps move_tensors(const Graph& graph, const std::vector<Step>& steps,
                        const std::vector<Absence>& absences, const Link& link, Bytes limit,
                        Bytes host_limit) {
  return Mover(graph, absences, limit, host_limit).run(steps, link.to_device);
}

std::vector<Absence> absences_over_turn(const Graph& graph, const std::vector<Step>& steps,
                                        OpId turn, const IdVector<TensorId, char>& leaves) {
  const IdVector<TensorId, Rest> rests = rests_over_turn(graph, steps, turn);
  std::vector<Absence> found;
  for (TensorId t : graph.tensors()) {
    if (!leaves[t] || graph.fixed(t) || !rests[t].worthwhile()) continue;
    found.push_back({.tensor = t, .after = rests[t].after, .before = rests[t].before});
  }
  return found;
}

MovedSteps move_tensors(const Graph& graph, const std::vector<Step>& steps, OpId turn,
                        const IdVector<TensorId, char>& leaves, const Link& link, Bytes limit,
                        Bytes host_limit) {
  return move_tensors(graph, steps, absences_over_turn(graph, steps, turn, leaves), link, limit,
                      host_limit);
}

}  // namespace regen::search
