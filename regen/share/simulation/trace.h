// A record of jobs that arrive and what they need: the input of a simulation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

enum class JobKind : std::uint8_t {
  kTraining,   // needs the device until all its steps are done
  kInference,  // a step is a request; they come at its rate, and it is idle between them
};

struct TraceJob {
  std::string name;
  Nanoseconds arrival = 0;
  JobKind kind = JobKind::kTraining;
  std::int64_t steps = 1;
  // With so many bytes a step takes so much device time; at least one, and no time is 0.
  std::vector<MemoryPoint> points;
  std::int64_t priority = 0;
  double weight = 1;
  // From the arrival to the end; of inference, of each request.
  std::optional<Nanoseconds> deadline = {};
  double rate = 0;  // requests in a second; of inference only

  bool operator==(const TraceJob&) const = default;
};

struct Trace {
  std::vector<TraceJob> jobs;  // in the order of the file
  // What the file says about the devices, if it does.
  std::optional<std::int64_t> devices = {};
  std::optional<Bytes> device_bytes = {};

  bool operator==(const Trace&) const = default;
};

inline constexpr std::size_t kMaxTraceJobs = 1'000'000;
inline constexpr std::int64_t kMaxTraceSteps = 1'000'000'000;
inline constexpr std::int64_t kMaxRequests = 20'000'000;  // of all inference jobs together
inline constexpr double kMaxTraceSeconds = 4e9;           // of device time in all
inline constexpr std::int64_t kMaxDevices = 100'000;

// Of the point with the most bytes: what the job takes when it is alone.
Nanoseconds least_time(const TraceJob& job);
// Index of the quickest point; of equal ones, the one with the fewest bytes.
std::size_t best_point(const TraceJob& job);
Bytes fewest_bytes(const TraceJob& job);
// When a request of an inference job comes.
Nanoseconds request_time(const TraceJob& job, std::int64_t number);

// JSON or CSV (docs/explanation/sharing.md), distinguished by content. `what` names it in messages.
Result<Trace> parse_trace(std::string_view text, std::string_view what);
std::string write_trace_json(const Trace& trace);
std::string write_trace_csv(const Trace& trace);

// What the readers of both formats end with.
Status check_trace(const Trace& trace, std::string_view what);
Result<Trace> parse_trace_csv(std::string_view text, std::string_view what);

}  // namespace regen::share
