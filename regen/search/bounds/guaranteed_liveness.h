// Guaranteed liveness: the values that are live while each op runs for the first time, if nothing
// is dropped or away, in every plan that a bound is about, whichever variants it takes.
//
// - A value is live if every variant of an earlier op makes it and some later op reads it in all
//   its variants; outputs are live to the end.
// - An op counts with what it makes and its workspace, in the variant that takes least.
//
// Before and after are those of the graph's order, which first runs keep.
#pragma once

#include <span>
#include <vector>

#include "regen/graph/graph.h"

namespace regen::search {

class GuaranteedLiveness {
 public:
  explicit GuaranteedLiveness(const Graph& graph);

  // Fixed bytes included. In floating point: they go into linear programs.
  double bytes(OpId op) const { return bytes_[op.index()]; }
  // The values that need not be on the device while the op runs: live, and not read by it.
  std::vector<TensorId> spare(OpId op) const;
  // For each op the bytes of its spare values, each times the fraction given for its maker.
  std::vector<double> spare_bytes(std::span<const double> of_makers) const;
  // What the ops before this one cost at least, and this one with those after it.
  double cost_before(OpId op) const { return cost_before_[op.index()]; }
  double cost_from(OpId op) const { return cost_before_.back() - cost_before(op); }
  // Whether every op that reads the tensor has run when this reader is done.
  bool reads_last(OpId op, TensorId t) const { return graph_.consumers(t).back() == op; }

 private:
  // The ops [first, last) at which a value is live; none if that is not certain.
  struct Range {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  void find_ranges();
  // Whether the value is live while the op, which reads it, runs.
  bool read_while_live(OpId op, TensorId t) const;

  const Graph& graph_;
  IdVector<TensorId, Range> ranges_;
  std::vector<double> bytes_;
  std::vector<double> cost_before_;  // one more than ops
};

// Does the op read the tensor in all its variants?
bool reads_always(const Graph& graph, OpId op, TensorId t);

// The least cost of one run over the variants of an op, of its first or of a later one.
double cheapest_run(const Graph& graph, OpId op);
double cheapest_rerun(const Graph& graph, OpId op);

}  // namespace regen::search
