// Traces of jobs: no text crashes the readers; what is read can be written, read again and replayed
// under every policy to the end of every job.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/share/simulation/simulation.h"

namespace {

void replay_all(const regen::share::Trace& trace) {
  using regen::share::Policy;
  // What takes long is not a finding.
  regen::share::Nanoseconds longest = 1;
  std::int64_t requests = 0;
  for (const auto& job : trace.jobs) {
    longest = std::max(longest, regen::share::least_time(job));
    if (job.kind == regen::share::JobKind::kInference) requests += job.steps;
  }
  if (trace.jobs.size() > 30 || requests > 2000) return;
  for (std::size_t i = 0; i < regen::share::kPolicies; ++i) {
    const auto replayed = regen::share::replay(
        trace, {.policy = static_cast<Policy>(i), .devices = 2, .turn = longest / 8 + 1});
    if (!replayed.ok()) continue;
    for (std::size_t job = 0; job < trace.jobs.size(); ++job) {
      const auto& record = replayed->jobs[job];
      if (record.used <= 0 || record.finished < trace.jobs[job].arrival + record.used) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto trace = regen::share::parse_trace(text, "fuzz");
  if (!trace.ok()) return 0;
  const auto json = regen::share::parse_trace(write_trace_json(*trace), "json");
  const auto csv = regen::share::parse_trace(write_trace_csv(*trace), "csv");
  if (!json.ok() || !csv.ok() || json->jobs.size() != trace->jobs.size()) std::abort();
  if (csv->jobs.size() != trace->jobs.size()) std::abort();
  replay_all(*trace);
  return 0;
}
