// The interval model: one decision for each reuse interval of a value, and the sequence of ops that
// follows from all decisions. A reuse interval is the time between two uses of a value.
//
//   ops in order     a  b  c  d  e        a's value is read by b, d and e: its intervals are
//   intervals of a   |--|-----|--|----    a-b, b-d, d-e, and the time after e
//
// First runs follow the order of the graph. When an op reads a value that was dropped, the missing
// ops run again first. A recomputed value stays resident until its interval ends, unless the
// decision is kNever. The last interval of a value ends with its last use by a re-run. It concerns
// re-runs only: holding a value there is useful where larger values are cheap to make from it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::search {

enum class Holding : char {
  kHeld,     // on the device throughout
  kDropped,  // recomputed for its first use, then held to the end of the interval
  kNever,    // recomputed for each use
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
  std::vector<std::uint32_t> stage;  // by position: the op that first runs there or needs it
  // By interval: the op for which the value is recomputed; the interval's end if it is not.
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
  // Whether its value may be recomputed at the end of the interval.
  bool droppable(IntervalId g) const { return droppable_[g] != 0; }
  std::span<const IntervalId> intervals_of(TensorId t) const;
  // The interval of a planned tensor that contains the op or ends with it. The op comes after the
  // tensor's maker.
  IntervalId interval_at(TensorId t, std::uint32_t op) const;

  // Every value is held until its last use and dropped afterwards.
  Holdings keep_everything() const;
  IntervalSequence sequence(const Holdings& holdings) const;
  // Reads the decisions off a plan. False if its first runs are in another order.
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
