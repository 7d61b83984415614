// The interval model: one decision for each reuse interval of a value, and the sequence of ops that
// follows from all decisions. A reuse interval is the time between two uses of a value.
//
//   ops in order     a  b  c  d  e        a's value is read by b, d and e: its intervals are
//   intervals of a   |--|-----|--|----    a-b, b-d, d-e, and the time after e
//
// First runs follow the order of the graph. When an op reads a value that was dropped, the missing
// ops run again first. A recomputed value stays resident until its interval ends, unless the
// decision is kRecomputeEachUse, or an early drop ends its stay between two uses by re-runs. A moved
// value may be on the host between any two uses in its interval, re-runs included; whether it really
// leaves depends on the budget (build/movement.h). The last interval of a value ends with its last
// use by a re-run. It concerns re-runs only: holding a value there is useful where larger values are
// cheap to make from it.
//
// An op may run again until something that it reads is changed, by an update. An interval that ends
// later cannot be dropped. An output is awaited by the last op before which its maker may run again:
// until then it may be absent like a value that this op reads; from then on it is held. A value that
// is missing for a re-run when its own maker may no longer run is *lost*: such decisions have no
// valid sequence.
//
// An early run recomputes a value some stages before it is read. It takes bytes for longer and saves
// no run; it pays where an op would otherwise wait for a copy.
//
// With early drops and early runs the model expresses every sequence of ops in which first runs
// follow the order of the graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "regen/graph/csr.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"
#include "regen/search/build/movement.h"

namespace regen::search {

enum class Holding : char {
  kHeld,              // on the device throughout
  kMoved,             // may be on the host
  kDropped,           // recomputed for its first use, then held to the end of the interval
  kRecomputeEachUse,  // recomputed for each use
};

// Whether the value can be read without recomputing it.
constexpr bool is_resident(Holding holding) {
  return holding == Holding::kHeld || holding == Holding::kMoved;
}

struct ReuseInterval {
  TensorId tensor;
  std::uint32_t begin = 0;  // the op that makes or reads it
  std::uint32_t end = 0;    // the next one that reads it; the number of ops if there is none

  bool operator==(const ReuseInterval&) const = default;
};

using IntervalId = std::uint32_t;

// When `stage` begins, the value leaves the device if it is there.
struct EarlyDrop {
  std::uint32_t stage = 0;
  TensorId tensor;

  auto operator<=>(const EarlyDrop&) const = default;
};

// Before the op of `stage` runs, the value is recomputed if it is not on the device.
struct EarlyRun {
  std::uint32_t stage = 0;
  TensorId tensor;

  auto operator<=>(const EarlyRun&) const = default;
};

// All that is decided. Equal decisions give equal steps. Intervals that are not droppable must be
// resident.
class Decisions {
 public:
  Decisions() = default;
  explicit Decisions(std::size_t intervals) : holdings_(intervals, Holding::kHeld) {}

  Holding& operator[](IntervalId g) { return holdings_[g]; }
  Holding operator[](IntervalId g) const { return holdings_[g]; }

  bool moves() const { return std::ranges::find(holdings_, Holding::kMoved) != holdings_.end(); }
  const std::vector<EarlyDrop>& early_drops() const { return early_drops_; }  // ascending
  void add(const EarlyDrop& drop);
  void remove(const EarlyDrop& drop);
  template <typename Predicate>
  void remove_early_drops_if(Predicate predicate) {
    std::erase_if(early_drops_, predicate);
  }
  const std::vector<EarlyRun>& early_runs() const { return early_runs_; }  // ascending
  void add(const EarlyRun& run);
  void remove(const EarlyRun& run);
  template <typename Predicate>
  void remove_early_runs_if(Predicate predicate) {
    std::erase_if(early_runs_, predicate);
  }

 private:
  std::vector<Holding> holdings_;  // by interval
  std::vector<EarlyDrop> early_drops_;
  std::vector<EarlyRun> early_runs_;
};

struct IntervalSequence {
  std::vector<OpId> ops;
  std::vector<std::uint32_t> stage;  // by position: the op that first runs there or needs it
  // By interval: the op for which the value is recomputed; the interval's end if it is not.
  std::vector<std::uint32_t> returned;
  std::vector<Absence> absences;  // of moved values
  std::vector<TensorId> lost;
};

class IntervalModel {
 public:
  // check_sequences_possible() must hold for the graph, which must outlive the model.
  // Ops after the forward pass run again only with `gradients_again`.
  explicit IntervalModel(const Graph& graph, bool gradients_again = true);

  std::size_t size() const { return intervals_.size(); }
  const ReuseInterval& interval(IntervalId g) const { return intervals_[g]; }
  bool last(IntervalId g) const { return ends_[g] == graph_.num_ops(); }
  // Whether the op may run again in the stage of a later op.
  bool repeatable(OpId op, std::uint32_t stage) const { return stage <= last_rerun_[op]; }
  // The last stage in which it may; 0 if there is none.
  std::uint32_t last_rerun(OpId op) const { return last_rerun_[op]; }
  // Whether its value may be recomputed at the end of the interval.
  bool droppable(IntervalId g) const { return droppable_[g] != 0; }
  std::span<const IntervalId> intervals_of(TensorId t) const;
  // The interval of a planned tensor that contains the op or ends with it. The op comes after the
  // tensor's maker.
  IntervalId interval_at(TensorId t, std::uint32_t op) const;

  // Every value is held until its last use and dropped afterwards.
  Decisions keep_everything() const;
  // The same, but a re-run leaves nothing behind that has no further first-run use.
  Decisions keep_nothing_longer() const;
  IntervalSequence sequence(const Decisions& decisions) const;
  // Reads the decisions off a plan; nothing if its first runs are in another order. Early runs are
  // read for outputs, and where something moves: elsewhere a value is better recomputed when it is
  // read.
  std::optional<Decisions> read_plan(const Plan& plan) const;
  // The variant in which an op runs, and what it reads and makes that is not fixed.
  VariantId variant(OpId op) const { return variant_[op]; }
  std::span<const TensorId> reads(OpId op) const { return reads_[op]; }
  std::span<const TensorId> makes(OpId op) const { return makes_[op]; }
  // The outputs that must be on the device from this op on.
  std::span<const TensorId> awaits(OpId op) const { return awaits_[op]; }
  // Whether the op at the interval's end reads the value. A copy is fetched for a reader only.
  bool ends_with_read(IntervalId g) const { return ends_with_read_[g] != 0; }

 private:
  class Walk;
  class PlanReader;

  void find_last_reruns(bool gradients_again);
  void find_awaited_outputs();
  void add_intervals(TensorId t, const std::vector<std::uint32_t>& uses, bool awaited);

  const Graph& graph_;
  IdVector<OpId, std::uint32_t> last_rerun_;  // the last stage in which an op may run again, or 0
  IdVector<OpId, VariantId> variant_;
  bool overwrites_ = false;  // some op runs in a variant that overwrites what it reads
  Csr<OpId, TensorId> reads_, makes_, awaits_;
  std::vector<ReuseInterval> intervals_;  // in the order of tensors, then of time
  std::vector<std::uint32_t> ends_;
  std::vector<IntervalId> identity_;
  IdVector<TensorId, std::uint32_t> first_;  // the number of tensors + 1 entries
  std::vector<char> droppable_;
  std::vector<char> ends_with_read_;
};

}  // namespace regen::search
