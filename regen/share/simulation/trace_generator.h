// Made-up traces: Poisson arrivals, durations with a heavy tail, a few priorities, some inference.
#pragma once

#include "regen/share/simulation/trace.h"

namespace regen::share {

struct TraceOptions {
  std::int64_t jobs = 100;
  std::int64_t devices = 1;
  Bytes device_bytes = Bytes{80} << 30;
  std::uint64_t seed = 0;
  double load = 0.8;          // device time asked for, over what the devices have while jobs arrive
  double mean_seconds = 600;  // device time of a job
  double tail = 1.5;          // exponent of the Pareto durations, above 1; infinity: exponential
  double inference = 0.1;     // part of the jobs
  std::int64_t priorities = 3;
  double deadlines = 0.3;  // part of the jobs that have one
};

// The same options give the same trace on every machine.
Result<Trace> make_trace(const TraceOptions& options);

}  // namespace regen::share
