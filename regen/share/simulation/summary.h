// What a replay says about a policy, in a few numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "regen/base/json.h"
#include "regen/share/simulation/simulation.h"

namespace regen::share {

// Seconds. A percentile is the least value that so many per cent of all do not exceed.
struct Distribution {
  std::size_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double most = 0;
};

Distribution distribution(std::vector<double> values);

struct Summary {
  Policy policy = Policy::kPriority;
  Distribution completion;     // of trainings, from arrival to end
  Distribution waiting;        // of trainings: completion without the device time they used
  Distribution request;        // from a request to its answer
  double makespan = 0;         // from the first arrival to the last end
  double utilisation = 0;      // device time used, of all devices for the makespan
  std::int64_t deadlines = 0;  // trainings and requests that have one
  std::int64_t missed = 0;
  double fairness = 0;  // Jain's index of least time over completion time, of trainings
  std::int64_t preemptions = 0;
  std::int64_t events = 0;
};

Summary summarize(const Trace& trace, const Replay& replay, Policy policy);
Json to_json(const Summary& summary);

}  // namespace regen::share
