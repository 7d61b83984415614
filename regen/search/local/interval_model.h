// When values are held and when they are dropped, as one decision for each interval between two uses,
// and the sequence of ops that follows from such decisions.
//
//   ops in order   a  b  c  d  e        a's value is read by b, d and e: its intervals are
//   intervals of a      |--|-----|--|----    a-b, b-d, d-e, and the time after e
//
// The order of first runs is that of the graph. When an op needs a value that was dropped, whatever
// is missing for it runs again first. What has been made again is held to the end of its interval,
// unless that says that it is made anew for each wish. The last interval of a value, which ends with its
// last use by an op that runs again, matters to those only: a value of no further use is worth
// holding where others, larger together, are cheaply made from it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::search {

enum class Holding : char {
  kHeld,     // on the device throughout
  kDropped,  // made again when first wished for, then held to the end of the interval
  kNever,    // made again for every wish
};

struct ReuseInterval {
  TensorId tensor;
  std::uint32_t begin = 0;  // the op that makes or reads it
  std::uint32_t end = 0;    // the next one that reads it; the number of ops if there is none

  bool operator==(const ReuseInterval&) const = default;
};

using IntervalId = std::uint32_t;
using Holdings = std::vector<Holding>;  // by interval

struct IntervalSequence {
  std::vector<OpId> ops;
  std::vector<std::uint32_t> stage;  // of each: the op whose first run it is or serves
  // Of each interval in which a value comes back: for which op it does. Its end otherwise.
  std::vector<std::uint32_t> returned;
};

class IntervalModel {
 public:
  // check_sequences_possible() must hold for the graph, which must outlive the model.
  // Ops after the forward pass run again only with `gradients_again`.
  explicit IntervalModel(const Graph& graph, bool gradients_again = true);

  std::size_t size() const { return intervals_.size(); }
  const ReuseInterval& interval(IntervalId g) const { return intervals_[g]; }
  bool last(IntervalId g) const { return intervals_[g].end == graph_.num_ops(); }
  // May its value be made again at the end of the interval?
  bool droppable(IntervalId g) const { return droppable_[g] != 0; }
  std::span<const IntervalId> intervals_of(TensorId t) const;
  // The interval of a planned tensor at an op after its making: the one that this op lies in or ends.
  IntervalId interval_at(TensorId t, std::uint32_t op) const;

  // Held as long as it is used; dropped release_options.
  Holdings keep_everything() const;
  IntervalSequence sequence(const Holdings& holdings) const;
  // The decisions that a plan amounts to. False if its first runs are in another order.
  bool read_plan(const Plan& plan, Holdings& holdings, IdVector<TensorId, char>& moved) const;

 private:
  class Walk;

  const Graph& graph_;
  IdVector<OpId, char> repeatable_;
  std::vector<ReuseInterval> intervals_;  // in the order of tensors, then of time
  std::vector<IntervalId> identity_;
  IdVector<TensorId, std::uint32_t> first_;  // the number of tensors + 1 entries
  std::vector<char> droppable_;
};

}  // namespace regen::search
