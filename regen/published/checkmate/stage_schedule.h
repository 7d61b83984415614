// Stage schedules: the R and S matrices of the literature, stored sparsely.
//
// Stage t ends by running op t for the first time. S[t, v] says that tensor v is in memory when
// stage t begins; R[t, i] that op i runs in stage t. Rows of S are unions of few intervals in
// every published strategy, so S is kept as intervals for each tensor and R as a list for each
// stage: a graph of 20,000 ops needs megabytes, not gigabytes.
#pragma once

#include <cstdint>
#include <vector>

#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::published {

// Stages first..last, both included.
struct StageInterval {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

class StageSchedule {
 public:
  explicit StageSchedule(const Graph& graph);

  // S[t, tensor] = 1 for t in [first, last], cut to the stages there are; nothing if first > last.
  void keep(TensorId tensor, std::int64_t first, std::int64_t last);

  // The cheapest R for this S when costs are not negative: each op in its own stage; an op before
  // the stage from which its output is kept; and all missing ops that those depend on.
  void complete();

  const std::vector<StageInterval>& kept(TensorId t) const { return kept_[t]; }
  std::size_t num_stages() const { return computed_.size(); }
  // All runs, stage by stage; empty before complete().
  std::vector<OpId> sequence() const;

  // The step list that keeps exactly what S says, used or not, and releases a value that S does
  // not carry on right after its last use in the stage (at the stage's start if there is none).
  Plan compile() const;

 private:
  void merge_intervals();

  const Graph& graph_;
  IdVector<TensorId, std::vector<StageInterval>> kept_;
  std::vector<std::vector<OpId>> computed_;
};

}  // namespace regen::published
