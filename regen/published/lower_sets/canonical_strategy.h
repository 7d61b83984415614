// Chains of lower sets of a graph that came from a lower-set file, executed as the published
// solvers execute them: the schedule, its overhead, and the ops for a plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regen/published/lower_sets/format/format_lower_sets.h"
#include "regen/published/lower_sets/format/schedule_text.h"
#include "regen/published/lower_sets/lower_set_family.h"

namespace regen::published {

// A graph that came from a lower-set file: how to write and run canonical strategies for it.
class CanonicalStrategy {
 public:
  // Fails for other graphs: they do not say which gradient belongs to which value. Both must
  // outlive it.
  static Result<CanonicalStrategy> of(const Graph& graph, const LowerSetNodes& nodes);

  const LowerSetFile& file() const { return file_; }
  // `sets` ascending, the last being all nodes.
  Schedule schedule(const std::vector<std::span<const std::uint64_t>>& sets) const;
  // The cost of all that such a schedule computes again, without writing it.
  double overhead(const std::vector<std::span<const std::uint64_t>>& sets) const;
  // The ops that a schedule runs. An op cannot run in parts: it runs where its first part does.
  std::vector<OpId> sequence(const Schedule& schedule) const;

 private:
  CanonicalStrategy(const Graph& graph, const LowerSetNodes& nodes)
      : graph_(&graph), nodes_(&nodes) {}
  // By node, the block of the chain.
  std::vector<std::uint32_t> blocks_of(
      const std::vector<std::span<const std::uint64_t>>& sets) const;

  const Graph* graph_;
  const LowerSetNodes* nodes_;
  LowerSetFile file_;
  std::vector<OpId> ops_;                  // by block of the file
  std::vector<OpId> sums_;                 // the ops that add up parts of gradients
  std::vector<std::uint32_t> file_block_;  // by node
  std::vector<char> reads_own_;            // by node: does it read its own value backward?
};

}  // namespace regen::published
