#include "regen/plan/pack/pack_check.h"

#include <string>

namespace regen {
namespace {

std::string describe(std::size_t index, const Lifetime& item, Bytes offset) {
  return "lifetime " + std::to_string(index) + " (time " + std::to_string(item.lower) + " to " +
         std::to_string(item.upper) + ", bytes " + std::to_string(offset) + " to " +
         std::to_string(offset + item.size) + ")";
}

bool meet(const Lifetime& a, Bytes a_offset, const Lifetime& b, Bytes b_offset) {
  const bool in_time = a.lower < b.upper && b.lower < a.upper;
  const bool in_memory = a_offset < b_offset + b.size && b_offset < a_offset + a.size;
  return in_time && in_memory && a.size > 0 && b.size > 0;
}

}  // namespace

Status check_packing(std::span<const Lifetime> lifetimes, std::span<const Bytes> offsets,
                     Bytes capacity, Bytes alignment) {
  if (lifetimes.size() != offsets.size()) {
    return bad_input("a packing of " + std::to_string(lifetimes.size()) + " lifetimes has " +
                     std::to_string(offsets.size()) + " offsets, expected one for each");
  }
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const std::string self = describe(i, lifetimes[i], offsets[i]);
    if (offsets[i] < 0 || offsets[i] > capacity - lifetimes[i].size) {
      return bad_input(self + " leaves the memory, expected bytes 0 to " +
                       std::to_string(capacity));
    }
    if (offsets[i] % alignment != 0) {
      return bad_input(self + " is not aligned, expected a multiple of " +
                       std::to_string(alignment));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (!meet(lifetimes[i], offsets[i], lifetimes[j], offsets[j])) continue;
      return bad_input(self + " meets " + describe(j, lifetimes[j], offsets[j]) +
                       ", expected no shared bytes");
    }
  }
  return {};
}

}  // namespace regen
