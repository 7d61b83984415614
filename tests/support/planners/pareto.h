// Which of many plans are not beaten in both memory and cost, and whether a planner finds them.
#pragma once

#include <map>
#include <string_view>

#include "regen/graph/graph.h"

namespace regen::testing {

class ParetoFront {
 public:
  // Returns false when something there is at least as good in both.
  bool add(Bytes bytes, double cost);
  const std::map<Bytes, double>& points() const { return points_; }

 private:
  std::map<Bytes, double> points_;  // bytes ascend, costs fall
};

// At the memory of each point and at one byte less the planner costs what the front says.
void expect_planner_on_front(std::string_view planner, const Graph& graph,
                             const ParetoFront& front);

}  // namespace regen::testing
