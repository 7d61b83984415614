// What one block of a chain of lower sets costs and needs, counted as the judge counts the ops of
// LowerSetBlocks::sequence(): every tensor is released at its last use.
//
// Everything about a block follows from the two sets around it and from which values of earlier
// blocks are "held": read after the forward pass by their own or an earlier block, so that
// they are there all the time while later blocks run. `held` is a sum of bytes and, for the few
// values for which it is not certain beforehand, a bit.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "regen/published/lower_sets/drop_bound.h"
#include "regen/published/lower_sets/lower_set_blocks.h"
#include "regen/published/lower_sets/lower_set_tensors.h"

namespace regen::published {

struct BlockFacts {
  double cost = 0;         // of what is run again
  Bytes peak = 0;          // beyond the held bytes of earlier blocks, the fixed bytes left out
  Bytes held = 0;          // what this block adds to the held bytes
  std::uint64_t mask = 0;  // the bits of uncertain values on the boundary of the larger set
  // A part of `peak` that only grows when the block grows.
  Bytes floor = 0;
  bool whole = true;  // false: refused early; `cost` and `floor` hold, `peak` is a lower bound
};

// Beyond these a block is of no interest, and its evaluation may stop.
struct BlockLimits {
  double cost = std::numeric_limits<double>::infinity();  // at least this is too much
  Bytes peak = std::numeric_limits<Bytes>::max();         // more than this is too much
};

class LowerSetMemory {
 public:
  // All must outlive it.
  LowerSetMemory(const LowerSetBlocks& blocks, const LowerSetFamily& family);

  // The block between two sets of the family, when the bits of the smaller are `mask`.
  const BlockFacts& evaluate(std::uint32_t from, std::uint32_t to, std::uint64_t mask,
                             const BlockLimits& limits = {});

  // What is certain to be read after the forward pass and not dropped is there all at once when
  // that pass is over. So bytes held, and read later outside a set, limit what can be kept.
  DropBound& bound() { return *bound_; }

  // Whether the judge will find the very same peak: there are not too many uncertain values.
  bool exact() const { return tensors_.exact(); }

 private:
  void collect(std::uint32_t from, std::uint32_t to);
  void find_reruns(std::uint32_t from, std::uint32_t to);
  void fill(std::uint32_t from, std::uint32_t to, std::uint64_t mask, const BlockLimits& limits);
  void run_forward(std::uint32_t from, std::uint32_t to, std::uint64_t mask);
  void run_backward(std::uint32_t from, std::uint32_t to, std::uint64_t mask);
  void add_held(std::uint32_t from, std::uint32_t to, std::uint64_t mask);
  template <class Needed, class Counted>
  void run(const std::vector<VariantId>& sequence, Bytes live, Needed needed, Counted counted);
  bool kept(std::uint32_t node) const { return dropped_[node] != round_; }
  bool in_block(std::uint32_t node) const { return block_[node] == round_; }

  const LowerSetBlocks& blocks_;
  const LowerSetNodes& nodes_;
  const Graph& graph_;
  const LowerSetFamily& family_;
  LowerSetTensors tensors_;

  // The block at hand; arrays hold the round in which their entry was true.
  std::uint32_t round_ = 0;
  std::vector<std::uint32_t> members_;
  std::vector<std::uint32_t> block_;
  std::vector<std::uint32_t> dropped_;
  std::vector<std::uint32_t> again_;
  IdVector<TensorId, std::uint32_t> used_;  // after the forward pass, in this block
  IdVector<TensorId, std::uint32_t> last_use_;
  std::vector<VariantId> forward_;
  std::vector<VariantId> backward_;
  std::vector<std::uint32_t> rerun_;
  Bytes peak_limit_ = 0;
  BlockFacts result_;

  // Blocks seen before, since searches at several budgets ask for the same ones again.
  struct Key {
    std::uint64_t sets = 0;
    std::uint64_t mask = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return (key.sets * 0x9e3779b97f4a7c15) ^ (key.mask * 0xff51afd7ed558ccd) ^ (key.sets >> 29);
    }
  };
  std::unordered_map<Key, BlockFacts, KeyHash> known_;

  std::optional<DropBound> bound_;
};

}  // namespace regen::published
