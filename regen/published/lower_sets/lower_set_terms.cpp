#include "regen/published/lower_sets/lower_set_terms.h"

namespace regen::published {

Gain gain(const LowerSetNodes& nodes, const LowerSetFamily& family, std::uint32_t from,
          std::uint32_t to) {
  Gain sum;
  const auto start = family[from];
  for (const auto& member : family.boundary(to)) {
    if (has_node(start, member.node)) continue;
    sum.cost += nodes.costs[member.node];
    sum.bytes += nodes.bytes[member.node];
  }
  return sum;
}

}  // namespace regen::published
