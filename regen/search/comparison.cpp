#include "regen/search/comparison.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "regen/base/tolerance.h"

namespace regen::search {

bool better(const Problem& problem, const Simulation& a, const Simulation& b) {
  const bool a_fits = within_limits(problem, a);
  if (a_fits != within_limits(problem, b)) return a_fits;
  if (a_fits && problem.budget) {
    return std::pair(a.cost, a.peak_bytes) < std::pair(b.cost, b.peak_bytes);
  }
  return std::pair(a.peak_bytes, a.cost) < std::pair(b.peak_bytes, b.cost);
}

bool clearly_better(const Problem& problem, const Simulation& a, const Simulation& b) {
  return within_limits(problem, a) && clearly_below(a.cost, b.cost);
}

double least_cost(const Graph& graph) {
  double sum = 0;
  for (OpId op : graph.ops()) {
    double least = std::numeric_limits<double>::infinity();
    for (VariantId v : graph.variants(op)) least = std::min(least, graph.cost(v));
    sum += least;
  }
  return sum;
}

}  // namespace regen::search
