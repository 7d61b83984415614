// Mixes two schedules of MONeT's model: where they differ the integer model decides anew,
// everything else stays as it is. Such neighbourhoods are larger than those of the shortest paths
// of MonetSearch, and tensors in them can change places at once. (Neighbourhoods at random places
// found nothing that annealing had missed.)
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
  using Neighbourhood = std::vector<char>;
  // The columns that stay.
  std::vector<search::ColumnValue> fixed(const Neighbourhood& neighbourhood,
                                         const std::vector<double>& values) const;
  bool decide(const Neighbourhood& neighbourhood, MonetSchedule& schedule, Effort& effort);
  MonetSchedule rated(MonetStorage storage) const;

  const MonetModel& model_;
  const MonetRelaxation& relaxation_;
};

}  // namespace regen::published
