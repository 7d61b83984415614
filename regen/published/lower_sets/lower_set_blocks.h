// From a chain of lower sets to the ops that run: which of the other ops (loss, backward, update)
// belong to which block, what survives the forward pass, what is run again. A block's ops after
// the forward pass are those that only read values of this block and of earlier ones.
//
//   forward    V1 | V2 | V3        each block in the order of op ids
//   backward   B3 | re-run of V2, B2 | re-run of V1, B1
//
// A value survives if a later block reads it (it is on a boundary); the last block is not re-run
// unless asked for. A re-run makes what B needs and only that.
#pragma once

#include <vector>

#include "regen/published/lower_sets/lower_set_family.h"

namespace regen::published {

// One bit for each op that is no node, in the order of ids.
using RestBits = std::vector<char>;

class LowerSetBlocks {
 public:
  // The graph and the nodes must outlive it.
  LowerSetBlocks(const Graph& graph, const LowerSetNodes& nodes);

  const Graph& graph() const { return graph_; }
  const LowerSetNodes& nodes() const { return nodes_; }
  // The ops that are no nodes, ascending.
  const std::vector<OpId>& rest() const { return rest_; }
  // Whether the forward pass may drop what a node makes. Not so if it cannot run again, makes an
  // output of the step, overwrites its input, or if an op might read it from another block.
  bool droppable(std::uint32_t node) const { return droppable_[node] != 0; }
  // Which ops of the rest run only when the backward pass has come down to `set`.
  RestBits pending(std::span<const std::uint64_t> set) const;
  // Whether such an op always runs in the block of the node.
  bool runs_with(std::size_t rest, std::uint32_t node) const;

  // The ops of a chain; `sets` ascending, the last being all nodes.
  std::vector<OpId> sequence(const std::vector<std::span<const std::uint64_t>>& sets,
                             bool rerun_last, Effort& effort) const;

 private:
  void find_wanted();
  void find_droppable();
  bool shrinks(std::size_t rest) const;
  bool crosses_safely(std::size_t rest, std::uint32_t node) const;

  const Graph& graph_;
  const LowerSetNodes& nodes_;
  std::vector<OpId> rest_;
  std::vector<std::vector<std::uint32_t>> before_;  // places in rest_ that must have run
  std::vector<SetWords> wanted_;                    // nodes read by it or by whatever waits for it
  std::vector<char> free_;                          // runs as early as it can
  std::vector<char> barrier_;                       // mutates: after all with smaller ids
  std::vector<char> behind_;                        // is a barrier, or waits for one
  std::vector<char> droppable_;
};

}  // namespace regen::published
