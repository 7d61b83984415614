// Variants of an op that differ in cost and workspace only, such as the algorithms of a
// convolution, and a graph in which each op has only the chosen variant. Planners that run base
// variants then run the chosen ones.
#pragma once

#include <vector>

#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::search {

// Both take the same values, make the same, and leave the same behind.
bool same_but_for_cost(const Graph& graph, VariantId a, VariantId b);

// The variants that make and read what the base variant does and leave its inputs alone; that
// variant is among them.
std::vector<VariantId> plain_alternatives(const Graph& graph, OpId op);

class VariantView {
 public:
  // `chosen` holds one of the plain alternatives of each op. The original graph must outlive the
  // view.
  static Result<VariantView> make(const Graph& original, IdVector<OpId, VariantId> chosen);
  // The graph with these variants alone, by their numbers, at least one for each op. What none of
  // them makes must not be read; it becomes a fixed tensor of 0 bytes, so that ids stay.
  static Result<VariantView> with_variants(const Graph& original,
                                           IdVector<OpId, std::vector<std::size_t>> numbers);

  const Graph& graph() const { return graph_; }
  // The first variant of each op, as one of the original graph.
  const IdVector<OpId, VariantId>& chosen() const { return chosen_; }
  // A plan for the view as one for the original graph.
  Plan original(Plan plan) const;
  // A plan for the original graph with the view's own variants where it lacks the plan's: a start
  // for a search, which need not be a plan for the view.
  Plan viewed(Plan plan) const;
  VariantId original(OpId op, VariantId of_view) const {
    return VariantId(originals_[op].index() +
                     numbers_[op][of_view.index() - graph_.default_variant(op).index()]);
  }

 private:
  Graph graph_;
  IdVector<OpId, VariantId> chosen_;
  IdVector<OpId, std::vector<std::size_t>> numbers_;  // of the view's variants in the original
  IdVector<OpId, VariantId> originals_;               // the original's default variants
};

}  // namespace regen::search
