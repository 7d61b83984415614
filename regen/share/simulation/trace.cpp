#include "regen/share/simulation/trace.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "regen/base/json_fields.h"
#include "regen/base/text.h"

namespace regen::share {
namespace {

constexpr const char* kFormat = "regen-trace";

// A time of the trace; `least` is 0 or one nanosecond.
Status read_time(const JsonCursor& object, const char* key, Nanoseconds least, Nanoseconds& time) {
  REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
  REGEN_ASSIGN(const double seconds, field.finite());
  if (seconds > kMaxSeconds || seconds < 0 || from_seconds(seconds) < least) {
    return field.error("found " + excerpt(field.value()) + ", expected seconds " +
                       (least > 0 ? "above 0" : "from 0") + " to 1e9");
  }
  time = from_seconds(seconds);
  return {};
}

Status read_steps(const JsonCursor& object, std::int64_t& steps) {
  if (!has_field(object, "steps")) return {};
  REGEN_ASSIGN(const JsonCursor field, required_field(object, "steps"));
  REGEN_ASSIGN(steps, field.whole(1, kMaxTraceSteps));
  return {};
}

Result<MemoryPoint> read_point(const JsonCursor& item) {
  REGEN_ASSIGN(const std::size_t size, item.array_size());
  if (size != 2)
    return item.error("found " + excerpt(item.value()) + ", expected [bytes, seconds]");
  MemoryPoint point;
  const JsonCursor bytes = item.item(0);
  const JsonCursor seconds = item.item(1);
  REGEN_ASSIGN(point.bytes, bytes.whole(0, kMaxBytes));
  REGEN_ASSIGN(const double time, seconds.finite());
  if (time > kMaxSeconds || time < 0 || from_seconds(time) < 1) {
    return seconds.error("found " + excerpt(seconds.value()) + ", expected seconds above 0 to 1e9");
  }
  point.time = from_seconds(time);
  return point;
}

// Either points, or bytes and the device time of all steps.
Status read_needs(const JsonCursor& object, TraceJob& job) {
  REGEN_TRY(read_steps(object, job.steps));
  if (!has_field(object, "points")) {
    MemoryPoint point;
    if (has_field(object, "memory")) {
      REGEN_ASSIGN(const JsonCursor field, required_field(object, "memory"));
      REGEN_ASSIGN(point.bytes, field.whole(0, kMaxBytes));
    }
    Nanoseconds all = 0;
    REGEN_TRY(read_time(object, "seconds", 1, all));
    point.time = std::max<Nanoseconds>(1, (all + job.steps / 2) / job.steps);
    job.points.push_back(point);
    return {};
  }
  for (const char* key : {"seconds", "memory"}) {
    if (has_field(object, key)) {
      return object.error("has " + std::string(key) + " and points, expected one of them");
    }
  }
  REGEN_ASSIGN(const JsonCursor list, required_field(object, "points"));
  REGEN_ASSIGN(const std::size_t size, list.array_size());
  if (size < 1 || size > kMaxPoints) {
    return list.error("found " + std::to_string(size) + " points, expected 1 to " +
                      std::to_string(kMaxPoints));
  }
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(const MemoryPoint point, read_point(list.item(i)));
    job.points.push_back(point);
  }
  return {};
}

Status read_claim(const JsonCursor& object, TraceJob& job) {
  if (has_field(object, "priority")) {
    REGEN_ASSIGN(const JsonCursor field, required_field(object, "priority"));
    REGEN_ASSIGN(job.priority, field.whole(0, kMaxPriority));
  }
  if (has_field(object, "weight")) {
    REGEN_ASSIGN(const JsonCursor field, required_field(object, "weight"));
    REGEN_ASSIGN(job.weight, field.finite());
    if (!(job.weight >= kMinWeight && job.weight <= kMaxWeight)) {
      return field.error("found " + excerpt(field.value()) + ", expected a number from " +
                         format_exact(kMinWeight) + " to " + format_exact(kMaxWeight));
    }
  }
  if (has_field(object, "deadline")) {
    Nanoseconds deadline = 0;
    REGEN_TRY(read_time(object, "deadline", 0, deadline));
    job.deadline = deadline;
  }
  return {};
}

Status read_kind(const JsonCursor& object, TraceJob& job) {
  std::string kind = "training";
  if (has_field(object, "kind")) REGEN_TRY(read_text(object, "kind", kind));
  if (kind != "training" && kind != "inference") {
    return object.error("kind is " + in_quotes(kind) + ", expected training or inference");
  }
  job.kind = kind == "training" ? JobKind::kTraining : JobKind::kInference;
  if (has_field(object, "rate") != (job.kind == JobKind::kInference)) {
    return object.error(kind + (job.kind == JobKind::kTraining
                                    ? " with a rate, expected it of inference only"
                                    : " without a rate, expected requests in a second"));
  }
  if (job.kind == JobKind::kTraining) return {};
  REGEN_ASSIGN(const JsonCursor field, required_field(object, "rate"));
  REGEN_ASSIGN(job.rate, field.finite());
  if (job.rate >= 1e-6 && job.rate <= 1e6) return {};
  return field.error("found " + excerpt(field.value()) +
                     ", expected requests in a second from 1e-06 to 1e+06");
}

Result<TraceJob> read_job(const JsonCursor& object) {
  REGEN_TRY(refuse_unknown_fields(object, {"name", "arrival", "kind", "seconds", "steps", "memory",
                                           "points", "priority", "weight", "deadline", "rate"}));
  TraceJob job;
  if (has_field(object, "name")) REGEN_TRY(read_text(object, "name", job.name));
  REGEN_TRY(read_time(object, "arrival", 0, job.arrival));
  REGEN_TRY(read_needs(object, job));
  REGEN_TRY(read_claim(object, job));
  REGEN_TRY(read_kind(object, job));
  return job;
}

Status read_devices(const JsonCursor& root, Trace& trace) {
  if (has_field(root, "devices")) {
    REGEN_ASSIGN(const JsonCursor field, required_field(root, "devices"));
    REGEN_ASSIGN(trace.devices, field.whole(1, kMaxDevices));
  }
  if (has_field(root, "device_memory")) {
    REGEN_ASSIGN(const JsonCursor field, required_field(root, "device_memory"));
    REGEN_ASSIGN(trace.device_bytes, field.whole(1, kMaxBytes));
  }
  return {};
}

Result<Trace> parse_trace_json(std::string_view text, std::string_view what) {
  REGEN_ASSIGN(const Json document, parse_json(text, what));
  const JsonCursor root(document, what);
  REGEN_TRY(root.expect_object());
  REGEN_TRY(check_format(root, kFormat, 1));
  REGEN_TRY(refuse_unknown_fields(root, {"format", "version", "devices", "device_memory", "jobs"}));
  Trace trace;
  REGEN_TRY(read_devices(root, trace));
  REGEN_ASSIGN(const JsonCursor list, required_field(root, "jobs"));
  REGEN_ASSIGN(const std::size_t size, list.array_size());
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(TraceJob job, read_job(list.item(i)));
    if (job.name.empty()) job.name = "job " + std::to_string(i);
    trace.jobs.push_back(std::move(job));
  }
  REGEN_TRY(check_trace(trace, what));
  return trace;
}

Json job_json(const TraceJob& job) {
  Json json{{"name", job.name}, {"arrival", to_seconds(job.arrival)}};
  if (job.kind == JobKind::kInference) {
    json["kind"] = "inference";
    json["rate"] = job.rate;
  }
  json["steps"] = job.steps;
  for (const MemoryPoint& point : job.points) {
    json["points"].push_back(Json::array({point.bytes, to_seconds(point.time)}));
  }
  if (job.priority != 0) json["priority"] = job.priority;
  if (job.weight != 1) json["weight"] = job.weight;
  if (job.deadline) json["deadline"] = to_seconds(*job.deadline);
  return json;
}

}  // namespace

std::size_t best_point(const TraceJob& job) {
  const auto better = [](const MemoryPoint& a, const MemoryPoint& b) {
    return std::pair(a.time, a.bytes) < std::pair(b.time, b.bytes);
  };
  const auto best = std::min_element(job.points.begin(), job.points.end(), better);
  return static_cast<std::size_t>(best - job.points.begin());
}

Nanoseconds least_time(const TraceJob& job) {
  return job.steps * job.points[best_point(job)].time;
}

Bytes fewest_bytes(const TraceJob& job) {
  Bytes fewest = kMaxBytes;
  for (const MemoryPoint& point : job.points) fewest = std::min(fewest, point.bytes);
  return fewest;
}

Nanoseconds request_time(const TraceJob& job, std::int64_t number) {
  return job.arrival + std::llround(static_cast<double>(number) * 1e9 / job.rate);
}

Status check_trace(const Trace& trace, std::string_view what) {
  const std::string where = on_one_line(what, 200) + ": ";
  if (trace.jobs.empty()) return bad_input(where + "no jobs, expected at least one");
  if (trace.jobs.size() > kMaxTraceJobs) {
    return bad_input(where + std::to_string(trace.jobs.size()) + " jobs, expected at most " +
                     std::to_string(kMaxTraceJobs));
  }
  std::int64_t requests = 0;
  double slowest = 0;  // all jobs at their slowest points: every time of a replay stays below it
  for (const TraceJob& job : trace.jobs) {
    Nanoseconds step = 0;
    for (const MemoryPoint& point : job.points) step = std::max(step, point.time);
    slowest += static_cast<double>(job.steps) * static_cast<double>(step);
    if (slowest > kMaxTraceSeconds * 1e9) {
      return bad_input(where + "the jobs up to " + in_quotes(job.name) + " take more than " +
                       format_exact(kMaxTraceSeconds) + " seconds of device time in all");
    }
    if (job.kind != JobKind::kInference) continue;
    requests += job.steps;
    if (requests > kMaxRequests || static_cast<double>(job.steps) / job.rate > kMaxSeconds) {
      return bad_input(where + "job " + in_quotes(job.name) + " has " + std::to_string(job.steps) +
                       " requests, expected at most " + std::to_string(kMaxRequests) +
                       " in all, within 1e9 seconds");
    }
  }
  return {};
}

Result<Trace> parse_trace(std::string_view text, std::string_view what) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  return json ? parse_trace_json(text, what) : parse_trace_csv(text, what);
}

std::string write_trace_json(const Trace& trace) {
  Json json{{"format", kFormat}, {"version", 1}};
  if (trace.devices) json["devices"] = *trace.devices;
  if (trace.device_bytes) json["device_memory"] = *trace.device_bytes;
  std::string text = json.dump();
  text.back() = ',';
  text += "\"jobs\":[";
  for (const TraceJob& job : trace.jobs) {
    text += (text.back() == '[' ? "\n" : ",\n") +
            job_json(job).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text + "\n]}\n";
}

}  // namespace regen::share
