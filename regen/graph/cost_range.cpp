#include "regen/graph/cost_range.h"

#include <algorithm>
#include <string>

#include "regen/base/text.h"
#include "regen/base/units.h"

namespace regen {

Status check_cost_range(const Graph& graph) {
  double sum = 0;
  for (const VariantId v : IdRange<VariantId>(graph.num_variants())) {
    for (const double cost : {graph.cost(v), graph.rerun_cost(v)}) {
      sum += cost;
      const bool too_small = cost > 0 && cost < kLeastCost;
      if (!too_small && sum <= kMostCost) continue;
      return bad_input("graph " + in_quotes(graph.name()) + ": op " +
                       in_quotes(graph.name(graph.op(v))) + ": cost " + format_exact(cost) +
                       (too_small ? " found, expected 0 or at least "
                                  : " found, expected costs that add up to at most ") +
                       format_exact(too_small ? kLeastCost : kMostCost));
    }
  }
  return {};
}

}  // namespace regen
