// The order in which CPython (3.7 and later) walks a set of integers. Checkmate's heuristics
// choose checkpoints while iterating over Python sets, so their published results depend on it.
//
// A set is a table of 2^k slots, at first 8. An integer goes to the slot given by its low bits;
// when that is taken, to one of the next nine, or else to one found by scrambling. The walk is in
// slot order: ascending as long as all numbers are below the table's size, and not beyond.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace regen::published {

class CPythonIntSet {
 public:
  CPythonIntSet() : table_(kMinSlots) {}

  // Numbers below 2^61 - 1; negative ones in two's complement, as static_cast<std::size_t>(-1).
  void add(std::size_t number);

  // What `this.union(other)` gives: a copy, which may have another table size, with the other's
  // numbers added in their order.
  CPythonIntSet union_with(const CPythonIntSet& other) const;

  std::size_t size() const { return used_; }
  std::vector<std::size_t> iteration_order() const;

 private:
  static constexpr std::size_t kMinSlots = 8;
  struct Slot {
    std::size_t number = 0;
    bool taken = false;
  };

  std::size_t mask() const { return table_.size() - 1; }
  // The first slot on the number's way that is free or holds it.
  std::size_t find_slot(std::size_t number) const;
  // To the smallest table with more slots than `at_least`, in the order of the walk.
  void resize(std::size_t at_least);
  void merge(const CPythonIntSet& other);

  std::vector<Slot> table_;
  std::size_t used_ = 0;
};

}  // namespace regen::published
