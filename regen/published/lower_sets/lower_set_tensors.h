// Facts about the tensors of a graph that hold for any chain of lower sets: their readers, and
// whether they are "held" (lower_set_memory.h); and facts about a set by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "regen/published/lower_sets/lower_set_blocks.h"

namespace regen::published {

class LowerSetTensors {
 public:
  static constexpr std::size_t kMaxBits = 64;
  static constexpr std::uint8_t kGuaranteed = 255;  // held by its own block, always
  static constexpr std::uint8_t kNeverYet = 254;    // not held while it is on a boundary
  static constexpr std::uint8_t kForced = 253;      // uncertain, but no bit left: counted as held

  // What is known about a set by itself, found when it is first needed.
  struct SetFacts {
    RestBits pending;
    std::vector<std::uint64_t> pending_words;  // the same, 64 in a word
    Bytes others = 0;                // made after the forward pass above the set, read below it
    std::vector<TensorId> crossing;  // made in the set, read above it, perhaps not held
  };

  // Both must outlive it.
  LowerSetTensors(const LowerSetBlocks& blocks, const LowerSetFamily& family);

  // Whether the judge will find the very same peak: there are not too many uncertain values.
  bool exact() const { return exact_; }
  // The node that makes it, or LowerSetNodes::kNone.
  std::uint32_t node(TensorId t) const { return node_[t]; }
  // One of the above, or the number of its bit.
  std::uint8_t status(TensorId t) const { return status_[t]; }
  VariantId node_variant(std::uint32_t node) const { return node_variants_[node]; }
  VariantId rest_variant(std::size_t rest) const { return rest_variants_[rest]; }

  const SetFacts& facts(std::uint32_t set);
  // Is it read above the set, or after the forward pass above it?
  bool crosses(TensorId t, std::span<const std::uint64_t> set, const RestBits& pending) const;
  bool read_below(TensorId t, const RestBits& pending) const;
  bool is_held(TensorId t, std::uint64_t mask) const;

 private:
  void classify();

  const LowerSetBlocks& blocks_;
  const LowerSetNodes& nodes_;
  const Graph& graph_;
  const LowerSetFamily& family_;
  bool exact_ = true;
  IdVector<TensorId, std::uint32_t> node_;   // that makes it, or kNone
  IdVector<TensorId, std::uint8_t> status_;  // one of the above, or the number of its bit
  Csr<TensorId, std::uint32_t> node_readers_;
  Csr<TensorId, std::uint32_t> rest_readers_;
  std::vector<VariantId> node_variants_;
  std::vector<VariantId> rest_variants_;
  std::vector<std::optional<SetFacts>> facts_;
};

}  // namespace regen::published
