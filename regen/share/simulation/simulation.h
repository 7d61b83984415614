// Replays a trace on modelled devices under a policy: from event to event, in whole nanoseconds, so
// that the same trace gives the same answer on every machine.
//
// A job that arrives is placed on a device and stays there: on one where its quickest point fits
// beside the others, else on one where all fit at some of their points (split.h chooses them, as
// the daemon does); of several, on the one with the least device time still to do. A job that fits
// nowhere waits; waiting jobs are tried again, best first, when a job ends. Jobs grow back when one
// leaves. Under kFcfs a device takes one job only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/simulation/trace.h"
#include "regen/share/simulation/turns.h"

namespace regen::share {

struct SimulationOptions {
  Policy policy = Policy::kPriority;
  std::int64_t devices = 1;
  Bytes device_bytes = Bytes{80} << 30;
  Nanoseconds turn = 1'000'000'000;  // of the policies with weights
  // A holder that is asked to give way does so at the end of a quantum of this length, counted from
  // its grant; 0: at once.
  Nanoseconds quantum = 0;
};

struct JobRecord {
  std::size_t device = 0;
  Nanoseconds placed = 0;
  Nanoseconds finished = 0;
  Nanoseconds used = 0;  // device time
  std::int64_t preemptions = 0;
};

struct RequestRecord {
  std::size_t job = 0;
  Nanoseconds arrived = 0;
  Nanoseconds finished = 0;
};

struct Replay {
  std::vector<JobRecord> jobs;  // as in the trace
  std::vector<RequestRecord> requests;
  std::vector<Nanoseconds> busy;  // of each device
  std::int64_t events = 0;
};

// Refused when a job does not fit an empty device.
Result<Replay> replay(const Trace& trace, const SimulationOptions& options);

}  // namespace regen::share
