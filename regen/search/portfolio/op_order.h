// Other orders in which the ops of a graph may first run, and the graph in such an order: planners,
// which take ops as they come, then plan for that one.
#pragma once

#include <vector>

#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::search {

// What the order of first runs must respect: values are made before they are read, changes of a
// fixed tensor stay where they are between its readers, an op that may overwrite a value comes
// after its other readers, and random ops keep their sequence.
class OrderRules {
 public:
  explicit OrderRules(const Graph& graph);

  // Ops that leave fewer bytes behind than they found run as soon as they can, the others as they
  // come; the forward pass before the rest. What changes fixed tensors is not hurried, because
  // nothing that read them could run again.
  std::vector<OpId> early_release() const;
  // Ops that leave more behind run as late as they can.
  std::vector<OpId> late_making() const;
  // Whether the rules hold for an order of all ops.
  bool allow(const std::vector<OpId>& order) const;

 private:
  void add(OpId before, OpId after);
  void add_values();
  void add_changes();
  void add_random();

  const Graph& graph_;
  IdVector<OpId, std::vector<OpId>> after_;
  IdVector<OpId, std::vector<OpId>> before_;
};

class OrderView {
 public:
  // `order` holds every op once. The original graph must outlive the view.
  static Result<OrderView> make(const Graph& original, std::vector<OpId> order);

  const Graph& graph() const { return graph_; }
  // A plan for the view as one for the original graph.
  Plan original(Plan plan) const;

 private:
  Graph graph_;
  std::vector<OpId> order_;
};

}  // namespace regen::search
