// Divides a device's bytes among jobs that can each run with several amounts.
#pragma once

#include <cstdint>
#include <vector>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

struct SplitJob {
  std::int64_t priority = 0;
  std::vector<MemoryPoint> points;  // at least one
};

struct Split {
  std::vector<std::size_t> chosen;  // for each job, which of its points
  Bytes bytes = 0;                  // the sum over the chosen points
  Nanoseconds time = 0;             // likewise
};

// Chooses one point for each job so that the bytes fit into `capacity` and the time is least: first
// the sum over the jobs of the highest priority, then that of the next, and so on. Of equal choices
// the one that takes fewer bytes. Infeasible when even the smallest points do not fit.
//
// Exact for granule 1. The work grows with the number of different sums of bytes. A caller that
// needs a fast answer counts bytes in granules, rounded up for each point: the answer still fits,
// and is optimal for the rounded sizes.
Result<Split> split(const std::vector<SplitJob>& jobs, Bytes capacity, Bytes granule = 1);

}  // namespace regen::share
