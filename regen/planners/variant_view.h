// Ways to run an op that differ in cost and workspace alone, as the algorithms of a convolution do,
// and a graph in which each op has just the one that was chosen for it: planners that run base
// variants then run the chosen ones.
#pragma once

#include <vector>

#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen {

// The variants that make and read what the base variant does and leave its inputs alone; that
// variant is among them.
std::vector<VariantId> plain_alternatives(const Graph& graph, OpId op);

// Of these the fastest with at most so much workspace, or the one with the least if all have more.
VariantId fastest_within(const Graph& graph, OpId op, Bytes workspace);

class VariantView {
 public:
  // `chosen` holds one of the plain alternatives of each op. The original graph must outlive the
  // view.
  static Result<VariantView> make(const Graph& original, IdVector<OpId, VariantId> chosen);

  const Graph& graph() const { return graph_; }
  const IdVector<OpId, VariantId>& chosen() const { return chosen_; }
  // A plan for the view as one for the original graph.
  Plan original(Plan plan) const;

 private:
  Graph graph_;
  IdVector<OpId, VariantId> chosen_;
  IdVector<OpId, std::vector<std::size_t>> numbers_;  // of the view's variants in the original
};

}  // namespace regen
