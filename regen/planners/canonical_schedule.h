// The canonical strategy of a chain of lower sets, as the published solvers execute it (Kusumoto et
// al., NeurIPS 2019): orders over the blocks and variables of a lower-set file.
//
//   forward    block by block; of each only the values that a later block reads stay
//   backward   from the last block to the first: what is gone of the block is computed again, the
//              last block too; then the gradients of the block's own values are made, from the
//              last function to the first
//
// So a function whose inputs lie in different blocks runs backward in parts, and the gradient of
// its output waits with its inputs until the earliest of them. Gradients of parameters come with
// the first part. A function that reads its own output backward, ReLU say, usually does so when
// that value is gone: it is then computed right before and forgotten right after. Every forget
// stands directly after the last order that touches the value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regen/graph/format_lower_sets.h"
#include "regen/plan/schedule_text.h"
#include "regen/planners/lower_set_family.h"

namespace regen {

// `chain_block`: for each forward block of the file, in which block of the chain it is (from 0).
// `order`: the forward blocks in the order in which they run.
Schedule canonical_schedule(const LowerSetFile& file, std::span<const std::uint32_t> order,
                            std::span<const std::uint32_t> chain_block);

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

}  // namespace regen
