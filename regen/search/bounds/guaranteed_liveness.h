// Guaranteed liveness: the values that are live while each op runs for the first time, if nothing
// is dropped or away, in every plan that a bound is about, whichever variants it takes.
//
// - A value is live if every variant of an earlier op makes it and some later op reads it in all
//   its variants; outputs are live to the end.
// - An op counts with what it makes and its workspace, in the variant that takes least.
//
// Before and after are those of the graph's order (LivenessInOrder), or of every order in which the
// ops can run (LivenessInEveryOrder). The latter is weaker: only the ops that an op depends on,
// directly or indirectly, certainly come before it.
#pragma once

#include <span>
#include <vector>

#include "regen/graph/graph.h"

namespace regen::search {

class GuaranteedLiveness {
 public:
  virtual ~GuaranteedLiveness() = default;

  const Graph& graph() const { return graph_; }
  // Fixed bytes included. In floating point: they go into linear programs.
  double bytes(OpId op) const { return bytes_[op.index()]; }
  // The values that need not be on the device while the op runs: live, and not read by it.
  virtual std::vector<TensorId> spare(OpId op) const = 0;
  // For each op the bytes of its spare values, each times the fraction given for its maker.
  virtual std::vector<double> shares(std::span<const double> of_makers) const = 0;
  // The most that all other ops cost which can run for the first time before the op, and the most
  // that the op and those after it cost.
  virtual double cost_before(OpId op) const = 0;
  virtual double cost_from(OpId op) const = 0;
  // Whether every op that reads the tensor has run when this reader is done.
  virtual bool reads_last(OpId op, TensorId t) const = 0;

 protected:
  explicit GuaranteedLiveness(const Graph& graph) : graph_(graph) {}
  // Called when the spare values are known.
  void add_bytes_beside(std::vector<double> spare_bytes);

  const Graph& graph_;
  std::vector<double> bytes_;
};

class LivenessInOrder : public GuaranteedLiveness {
 public:
  explicit LivenessInOrder(const Graph& graph);

  std::vector<TensorId> spare(OpId op) const override;
  std::vector<double> shares(std::span<const double> of_makers) const override;
  double cost_before(OpId op) const override { return cost_before_[op.index()]; }
  double cost_from(OpId op) const override { return cost_before_.back() - cost_before(op); }
  bool reads_last(OpId op, TensorId t) const override { return graph_.consumers(t).back() == op; }

 private:
  // The ops [first, last) at which a value is live; none if that is not certain.
  struct Range {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  void find_ranges();
  // Whether the value is live while the op, which reads it, runs.
  bool read_while_live(OpId op, TensorId t) const;

  IdVector<TensorId, Range> ranges_;
  std::vector<double> cost_before_;  // one more than ops
};

// Takes memory and time quadratic in the number of ops.
class LivenessInEveryOrder : public GuaranteedLiveness {
 public:
  explicit LivenessInEveryOrder(const Graph& graph);

  std::vector<TensorId> spare(OpId op) const override { return spare_[op.index()]; }
  std::vector<double> shares(std::span<const double> of_makers) const override;
  double cost_before(OpId op) const override { return cost_before_[op.index()]; }
  double cost_from(OpId op) const override { return cost_from_[op.index()]; }
  bool reads_last(OpId op, TensorId t) const override;

 private:
  using Ops = std::vector<bool>;
  void find_ancestors();
  void find_spare();
  void add_up_costs();

  std::vector<Ops> ancestors_;  // of each op: what has run before it in every order
  std::vector<std::vector<TensorId>> spare_;
  std::vector<double> cost_before_;
  std::vector<double> cost_from_;
};

// Does the op read the tensor in all its variants?
bool reads_always(const Graph& graph, OpId op, TensorId t);

// The least cost of one run over the variants of an op, of its first or of a later one.
double cheapest_run(const Graph& graph, OpId op);
double cheapest_rerun(const Graph& graph, OpId op);

}  // namespace regen::search
