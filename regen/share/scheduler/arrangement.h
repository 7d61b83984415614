// How the jobs of a device can live together in its memory, from best to worst:
//
//   side by side   every job keeps one of its amounts of bytes, the cheapest such choice (split.h)
//   in turns       jobs that can spill keep their persistent bytes; one range of memory for their
//                  other bytes belongs to the job that holds the device
//   some away      as before, without the lowest jobs that can leave and that another job outranks
#pragma once

#include <vector>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

// What a job needs, as far as sharing memory is concerned.
struct Demand {
  std::int64_t priority = 0;
  std::vector<MemoryPoint> choices;  // at least one; the bytes include the persistent ones
  Bytes persistent = 0;              // stay on the device when the job has spilled
  bool can_spill = false;
  bool may_be_away = false;

  bool operator==(const Demand&) const = default;
};

// What `spec` requests, without whether it may be away.
Demand demand_of(const JobSpec& spec);

Bytes least_bytes(const Demand& demand);
// What stays while another job uses the device, when this one has `full` bytes of its own.
Bytes parked_bytes(const Demand& demand, Bytes full);

struct Place {
  Bytes limit = 0;
  bool away = false;  // then the limit means nothing

  bool operator==(const Place&) const = default;
};

// One place for each job. Of the jobs that are not away, the parked bytes of all plus the other
// bytes of any one fit into the capacity. Infeasible, with the numbers, when there is no such
// choice.
//
// Jobs are put away in the order of ascending priority, then the last first; no job is away that
// would fit. Where all jobs get their maximum, the work is linear.
Result<std::vector<Place>> arrange(const std::vector<Demand>& jobs, Bytes capacity);

}  // namespace regen::share
