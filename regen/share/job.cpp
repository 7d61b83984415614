#include "regen/share/job.h"

#include <algorithm>
#include <cmath>

#include "regen/base/json_fields.h"
#include "regen/base/text.h"

namespace regen::share {
namespace {

std::string weight_range() {
  return "a number from " + format_exact(kMinWeight) + " to " + format_exact(kMaxWeight);
}

bool good_weight(double weight) {
  return weight >= kMinWeight && weight <= kMaxWeight;
}

// Names end in tables and metrics: something to read, on one line.
Status read_name(const JsonCursor& object, const char* key, std::string& name) {
  REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
  REGEN_ASSIGN(name, field.string());
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != 127;
  });
  if (!name.empty() && name.size() <= kMaxNameLength && plain && is_utf8(name)) return {};
  return field.error("found " + excerpt(field.value()) + ", expected 1 to " +
                     std::to_string(kMaxNameLength) + " printable bytes");
}

Status read_whole(const JsonCursor& object, const char* key, std::int64_t high,
                  std::int64_t& value) {
  if (!has_field(object, key)) return {};
  REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
  REGEN_ASSIGN(value, field.whole(0, high));
  return {};
}

Status read_weight(const JsonCursor& object, double& weight) {
  if (!has_field(object, "weight")) return {};
  REGEN_ASSIGN(const JsonCursor field, required_field(object, "weight"));
  REGEN_ASSIGN(weight, field.finite());
  if (good_weight(weight)) return {};
  return field.error("found " + excerpt(field.value()) + ", expected " + weight_range());
}

Result<Nanoseconds> read_seconds(const JsonCursor& field) {
  REGEN_ASSIGN(const double seconds, field.not_negative());
  if (seconds <= kMaxSeconds) return from_seconds(seconds);
  return field.error("found " + excerpt(field.value()) + ", expected at most 1e9 seconds");
}

Result<MemoryPoint> read_point(const JsonCursor& item) {
  REGEN_ASSIGN(const std::size_t size, item.array_size());
  if (size != 2) {
    return item.error("found " + excerpt(item.value()) + ", expected [bytes, seconds]");
  }
  const JsonCursor bytes = item.item(0);
  const JsonCursor seconds = item.item(1);
  MemoryPoint point;
  REGEN_ASSIGN(point.bytes, bytes.whole(0, kMaxBytes));
  REGEN_ASSIGN(point.time, read_seconds(seconds));
  return point;
}

Status read_points(const JsonCursor& object, std::vector<MemoryPoint>& points) {
  if (!has_field(object, "points")) return {};
  REGEN_ASSIGN(const JsonCursor list, required_field(object, "points"));
  REGEN_ASSIGN(const std::size_t size, list.array_size());
  if (size > kMaxPoints) {
    return list.error("found " + std::to_string(size) + " points, expected at most " +
                      std::to_string(kMaxPoints));
  }
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(const MemoryPoint point, read_point(list.item(i)));
    points.push_back(point);
  }
  return {};
}

Status read_options(const JsonCursor& object, JobSpec& spec) {
  if (has_field(object, "device")) REGEN_TRY(read_name(object, "device", spec.device));
  REGEN_TRY(read_whole(object, "priority", kMaxPriority, spec.priority));
  REGEN_TRY(read_weight(object, spec.weight));
  if (has_field(object, "deadline_seconds")) {
    REGEN_ASSIGN(const JsonCursor field, required_field(object, "deadline_seconds"));
    REGEN_ASSIGN(spec.deadline, read_seconds(field));
  }
  if (has_field(object, "again")) {
    REGEN_ASSIGN(const JsonCursor field, required_field(object, "again"));
    REGEN_ASSIGN(spec.again, field.boolean());
  }
  return {};
}

// A job that says what it asks for, its least bytes and its points must mean one thing by them.
Status check_memory(const JsonCursor& object, const JobSpec& spec) {
  if (least_bytes(spec) <= spec.memory) return {};
  return object.error("memory is " + format_grouped(spec.memory) +
                      " bytes, expected at least the " + format_grouped(least_bytes(spec)) +
                      " that the job says it needs");
}

}  // namespace

Bytes least_bytes(const JobSpec& spec) {
  if (!spec.points.empty()) {
    const auto smaller = [](const MemoryPoint& a, const MemoryPoint& b) {
      return a.bytes < b.bytes;
    };
    return std::min_element(spec.points.begin(), spec.points.end(), smaller)->bytes;
  }
  return spec.least_bytes > 0 ? spec.least_bytes : spec.memory;
}

std::vector<MemoryPoint> choices(const JobSpec& spec) {
  if (!spec.points.empty()) return spec.points;
  return {{.bytes = least_bytes(spec), .time = 0}};
}

Nanoseconds from_seconds(double seconds) {
  return static_cast<Nanoseconds>(std::llround(seconds * 1e9));
}

double to_seconds(Nanoseconds time) {
  return static_cast<double>(time) / 1e9;
}

Result<double> parse_weight(std::string_view text) {
  const auto weight = parse_double(text);
  if (weight.ok() && good_weight(*weight)) return *weight;
  return bad_input("bad weight " + in_quotes(text) + ", expected " + weight_range());
}

Result<std::int64_t> parse_priority(std::string_view text) {
  const auto priority = parse_int(text);
  if (priority.ok() && *priority >= 0 && *priority <= kMaxPriority) return *priority;
  return bad_input("bad priority " + in_quotes(text) + ", expected a whole number from 0 to " +
                   std::to_string(kMaxPriority) + ", higher is more urgent");
}

Result<Nanoseconds> parse_deadline(std::string_view text) {
  const auto seconds = parse_double(text);
  if (seconds.ok() && *seconds >= 0 && *seconds <= kMaxSeconds) return from_seconds(*seconds);
  return bad_input("bad deadline " + in_quotes(text) + ", expected seconds from 0 to 1e9");
}

Json to_json(const JobSpec& spec) {
  Json json{{"name", spec.name},
            {"identity", spec.identity},
            {"priority", spec.priority},
            {"weight", spec.weight},
            {"memory", spec.memory},
            {"again", spec.again},
            {"least_bytes", spec.least_bytes}};
  if (!spec.device.empty()) json["device"] = spec.device;
  if (spec.deadline) json["deadline_seconds"] = to_seconds(*spec.deadline);
  for (const MemoryPoint& point : spec.points) {
    json["points"].push_back(Json::array({point.bytes, to_seconds(point.time)}));
  }
  return json;
}

Result<JobSpec> job_from_json(const JsonCursor& object) {
  REGEN_TRY(
      refuse_unknown_fields(object, {"name", "identity", "device", "priority", "weight", "memory",
                                     "least_bytes", "points", "deadline_seconds", "again"}));
  JobSpec spec;
  REGEN_TRY(read_name(object, "name", spec.name));
  REGEN_TRY(read_name(object, "identity", spec.identity));
  REGEN_TRY(read_whole(object, "memory", kMaxBytes, spec.memory));
  REGEN_TRY(read_whole(object, "least_bytes", kMaxBytes, spec.least_bytes));
  REGEN_TRY(read_points(object, spec.points));
  REGEN_TRY(read_options(object, spec));
  REGEN_TRY(check_memory(object, spec));
  return spec;
}

}  // namespace regen::share
