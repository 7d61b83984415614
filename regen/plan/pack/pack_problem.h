// The packing problem in its smallest form, which the greedy packer and the search share.
//
// Times matter only by which items are live together, so they shrink to sections: the moments
// with a largest set of live items, in order. Sizes matter only up to their common divisor,
// because some lowest packing has every item on the ground or on top of another. And a
// boundary between sections that no item crosses cuts the problem into parts.
//
//   time      0 1 2 3 4 5 6        section   0 1 2
//   a         a a a a              a         a a
//   b         . . b b b            b         . b
//   c         . c                  c         c
//   d         . . . . . d d        d         . . d
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regen/plan/pack/pack.h"

namespace regen {

struct PackItem {
  std::int32_t first = 0;  // sections [first, last)
  std::int32_t last = 0;
  std::int64_t size = 0;  // in units, positive

  std::int32_t length() const { return last - first; }
  bool overlaps(const PackItem& other) const { return first < other.last && other.first < last; }
};

// Items that hang together in time, with sections counted from 0.
struct PackPart {
  std::vector<PackItem> items;
  std::vector<std::uint32_t> origin;  // index of each item's lifetime
  std::int32_t sections = 0;
  std::int64_t max_load = 0;  // in units
};

struct PackProblem {
  Bytes unit = 1;  // divides every size (rounded up to the alignment) and every offset
  std::vector<PackPart> parts;
  std::int64_t max_load = 0;  // in units
};

// Lifetimes of size 0 are in no part. The caller has checked the lifetimes.
PackProblem make_pack_problem(std::span<const Lifetime> lifetimes, Bytes alignment, bool split);

// Bytes alive in each section.
std::vector<std::int64_t> section_loads(const PackPart& part);

}  // namespace regen
