// Mixes two schedules of MONeT's program: where they differ the integer program decides anew,
// everything else staying as it is. Such windows are larger than what the shortest paths of
// MonetSearch can look at, and tensors in them can change places at once. (Windows of random place
// found nothing that annealing had left.)
#pragma once

#include "regen/base/limit.h"
#include "regen/published/monet/monet_relaxation.h"
#include "regen/published/monet/monet_search.h"

namespace regen::published {

class MonetNeighbourhoods {
 public:
  // The relaxation must have all memory rows, and stay as it is.
  MonetNeighbourhoods(const MonetModel& model, const MonetRelaxation& relaxation);

  // Decides anew where two schedules differ: the best mix of both, or nothing better than the
  // first. True if the first one became cheaper.
  bool mix(MonetSchedule& schedule, const MonetStorage& other, Effort& effort);

 private:
  // What may change, by stage and node: whether the node is stored before the stage.
  using Window = std::vector<char>;
  // The columns that stay.
  std::vector<search::ColumnValue> fixed(const Window& window,
                                         const std::vector<double>& values) const;
  bool decide(const Window& window, MonetSchedule& schedule, Effort& effort);
  MonetSchedule rated(MonetStorage storage) const;

  const MonetModel& model_;
  const MonetRelaxation& relaxation_;
};

}  // namespace regen::published
