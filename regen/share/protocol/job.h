// What a job states when it registers to share a device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regen/base/json.h"
#include "regen/base/result.h"
#include "regen/base/units.h"

namespace regen::share {

// A moment or a length of time. Only differences of moments mean something.
using Nanoseconds = std::int64_t;

inline constexpr std::int64_t kMaxPriority = 1'000'000;
inline constexpr double kMinWeight = 1e-3;
inline constexpr double kMaxWeight = 1e6;
inline constexpr std::size_t kMaxNameLength = 100;
inline constexpr std::size_t kMaxPoints = 256;
inline constexpr double kMaxSeconds = 1e9;
inline constexpr Nanoseconds kNever = INT64_MAX;

// How far a job can get out of the way of others while it does not hold the device.
enum class Depth : std::uint8_t {
  kPause,  // it issues no work; its memory stays
  kSpill,  // its transient memory moves to the host
  kLeave,  // its persistent memory too
};

const char* to_string(Depth depth);
Result<Depth> parse_depth(std::string_view text);

// One point of a job's trade-off curve: with so many bytes a step takes so long.
struct MemoryPoint {
  Bytes bytes = 0;
  Nanoseconds time = 0;

  bool operator==(const MemoryPoint&) const = default;
};

struct JobSpec {
  std::string name;           // for people
  std::string identity;       // one job's own, kept over connections
  std::string device;         // empty: the daemon's first
  std::int64_t priority = 0;  // higher is more urgent
  double weight = 1;          // inside a priority
  Bytes memory = 0;           // asked for
  Bytes least_bytes = 0;      // 0: `memory` is the least as well
  std::vector<MemoryPoint> points = {};
  Bytes persistent_bytes = 0;  // of the bytes above: what a spill leaves on the device
  Depth deepest = Depth::kPause;
  std::optional<Nanoseconds> deadline = {};  // from asking to being granted
  bool again = false;                        // it was registered before and lost its daemon; then:
  Bytes full_bytes = 0;                      // what its present plan takes
  Bytes held_bytes = 0;                      // what it has on the device now

  bool operator==(const JobSpec&) const = default;
};

// What a job knows about its memory only once it has planned. The bytes include the persistent
// ones; points above the memory that was asked for are not used.
struct Curve {
  Bytes persistent_bytes = 0;
  Bytes least_bytes = 0;  // 0: the least of the points, or what was asked for
  std::vector<MemoryPoint> points = {};
  Depth deepest = Depth::kPause;

  bool operator==(const Curve&) const = default;
};
void apply(const Curve& curve, JobSpec& spec);

// What an operator has changed about a job that runs.
struct JobChange {
  std::optional<std::int64_t> priority = {};
  std::optional<double> weight = {};
  std::optional<Bytes> memory = {};

  bool operator==(const JobChange&) const = default;
};
Json to_json(const JobChange& change);
// Refuses unknown fields; the field "job" is for the caller.
Result<JobChange> change_from_json(const JsonCursor& object);
void apply(const JobChange& change, JobSpec& spec);
// One after the other.
JobChange operator+(const JobChange& first, const JobChange& then);

// The least bytes that the job can live with.
Bytes least_bytes(const JobSpec& spec);

// The points to choose from: those stated, up to the requested bytes; without any, the requested
// bytes and the least ones. At least one.
std::vector<MemoryPoint> choices(const JobSpec& spec);

Nanoseconds from_seconds(double seconds);
double to_seconds(Nanoseconds time);

Result<double> parse_weight(std::string_view text);
Result<std::int64_t> parse_priority(std::string_view text);
Result<Nanoseconds> parse_deadline(std::string_view text);

Json to_json(const JobSpec& spec);
Result<JobSpec> job_from_json(const JsonCursor& object);
Json to_json(const Curve& curve);
Result<Curve> curve_from_json(const JsonCursor& object);
// Whether the job's statements about its memory are consistent.
Status check_memory(const JobSpec& spec);

}  // namespace regen::share
