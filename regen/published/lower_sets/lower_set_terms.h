// The terms of the published model of lower sets (lower_set_published.h), one set or block at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "regen/published/lower_sets/lower_set_family.h"

namespace regen::published {

// tail(L) of sets of a family.
class Tails {
 public:
  Tails(const LowerSetNodes& nodes, const LowerSetFamily& family)
      : nodes_(nodes),
        family_(family),
        reader_(nodes.size(), SIZE_MAX),
        read_(nodes.size(), SIZE_MAX) {}

  Bytes of(std::size_t set) {
    ++round_;
    Bytes tail = 0;
    const auto members = family_[set];
    for (const auto& member : family_.boundary(set)) {
      for (std::uint32_t reader : nodes_.successors[member.node]) {
        if (has_node(members, reader) || reader_[reader] == round_) continue;
        reader_[reader] = round_;
        tail += nodes_.bytes[reader];
        for (std::uint32_t read : nodes_.predecessors[reader]) {
          if (has_node(members, read) || read_[read] == round_) continue;
          read_[read] = round_;
          tail += nodes_.bytes[read];
        }
      }
    }
    return tail;
  }
  std::vector<Bytes> all() {
    std::vector<Bytes> tails;
    for (std::size_t set = 0; set < family_.size(); ++set) tails.push_back(of(set));
    return tails;
  }

 private:
  const LowerSetNodes& nodes_;
  const LowerSetFamily& family_;
  std::size_t round_ = 0;
  std::vector<std::size_t> reader_;  // the round in which it was counted as a reader
  std::vector<std::size_t> read_;    // and as what a reader reads
};

// What a transition adds to the cached values.
struct Gain {
  double cost = 0;
  Bytes bytes = 0;
};

Gain gain(const LowerSetNodes& nodes, const LowerSetFamily& family, std::uint32_t from,
          std::uint32_t to);

}  // namespace regen::published
