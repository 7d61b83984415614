#include "regen/share/protocol/job.h"

#include <algorithm>
#include <array>
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

Status read_depth(const JsonCursor& object, Depth& depth) {
  if (!has_field(object, "deepest")) return {};
  REGEN_ASSIGN(const JsonCursor field, required_field(object, "deepest"));
  REGEN_ASSIGN(const std::string text, field.string());
  const auto read = parse_depth(text);
  if (!read.ok()) return field.error(read.error().message);
  depth = *read;
  return {};
}

Status read_curve(const JsonCursor& object, Curve& curve) {
  REGEN_TRY(read_whole(object, "persistent_bytes", kMaxBytes, curve.persistent_bytes));
  REGEN_TRY(read_whole(object, "least_bytes", kMaxBytes, curve.least_bytes));
  REGEN_TRY(read_points(object, curve.points));
  return read_depth(object, curve.deepest);
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
  std::vector<MemoryPoint> points;
  for (const MemoryPoint& point : spec.points) {
    if (point.bytes <= spec.memory) points.push_back(point);
  }
  if (!points.empty()) return points;
  // What less memory costs is not known: the asked bytes where they fit.
  points.push_back({.bytes = spec.memory, .time = 0});
  if (least_bytes(spec) < spec.memory) points.push_back({.bytes = least_bytes(spec), .time = 1});
  return points;
}

void apply(const Curve& curve, JobSpec& spec) {
  spec.persistent_bytes = curve.persistent_bytes;
  spec.least_bytes = curve.least_bytes;
  spec.points = curve.points;
  spec.deepest = curve.deepest;
}

Status check_memory(const JobSpec& spec) {
  const Bytes least = least_bytes(spec);
  if (least > spec.memory) {
    return infeasible("job " + in_quotes(spec.name) + " may use " + format_grouped(spec.memory) +
                      " bytes, expected at least the " + format_grouped(least) +
                      " that it says it needs");
  }
  if (spec.persistent_bytes > least) {
    return bad_input(
        "job " + in_quotes(spec.name) + " says that " + format_grouped(spec.persistent_bytes) +
        " bytes are persistent, expected at most its least bytes, " + format_grouped(least));
  }
  return {};
}

const char* to_string(Depth depth) {
  constexpr std::array kNames{"pause", "spill", "leave"};
  return kNames[static_cast<std::size_t>(depth)];
}

Result<Depth> parse_depth(std::string_view text) {
  for (Depth depth : {Depth::kPause, Depth::kSpill, Depth::kLeave}) {
    if (text == to_string(depth)) return depth;
  }
  return bad_input("found " + in_quotes(text) + ", expected pause, spill or leave");
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

Json to_json(const Curve& curve) {
  Json json{{"persistent_bytes", curve.persistent_bytes},
            {"least_bytes", curve.least_bytes},
            {"deepest", to_string(curve.deepest)}};
  for (const MemoryPoint& point : curve.points) {
    json["points"].push_back(Json::array({point.bytes, to_seconds(point.time)}));
  }
  return json;
}

Json to_json(const JobSpec& spec) {
  Json json = to_json(Curve{spec.persistent_bytes, spec.least_bytes, spec.points, spec.deepest});
  json["name"] = spec.name;
  json["identity"] = spec.identity;
  json["priority"] = spec.priority;
  json["weight"] = spec.weight;
  json["memory"] = spec.memory;
  if (!spec.device.empty()) json["device"] = spec.device;
  if (spec.deadline) json["deadline_seconds"] = to_seconds(*spec.deadline);
  if (!spec.again) return json;
  json["again"] = true;
  json["full_bytes"] = spec.full_bytes;
  json["held_bytes"] = spec.held_bytes;
  return json;
}

Result<Curve> curve_from_json(const JsonCursor& object) {
  REGEN_TRY(
      refuse_unknown_fields(object, {"persistent_bytes", "least_bytes", "points", "deepest"}));
  Curve curve;
  REGEN_TRY(read_curve(object, curve));
  return curve;
}

Result<JobSpec> job_from_json(const JsonCursor& object) {
  REGEN_TRY(refuse_unknown_fields(
      object,
      {"name", "identity", "device", "priority", "weight", "memory", "least_bytes", "points",
       "persistent_bytes", "deepest", "deadline_seconds", "again", "full_bytes", "held_bytes"}));
  JobSpec spec;
  REGEN_TRY(read_name(object, "name", spec.name));
  REGEN_TRY(read_name(object, "identity", spec.identity));
  REGEN_TRY(read_whole(object, "memory", kMaxBytes, spec.memory));
  Curve curve;
  REGEN_TRY(read_curve(object, curve));
  apply(curve, spec);
  REGEN_TRY(read_options(object, spec));
  REGEN_TRY(read_whole(object, "full_bytes", kMaxBytes, spec.full_bytes));
  REGEN_TRY(read_whole(object, "held_bytes", kMaxBytes, spec.held_bytes));
  REGEN_TRY(check_memory(spec));
  return spec;
}

Json to_json(const JobChange& change) {
  Json json = Json::object();
  if (change.priority) json["priority"] = *change.priority;
  if (change.weight) json["weight"] = *change.weight;
  if (change.memory) json["memory"] = *change.memory;
  return json;
}

Result<JobChange> change_from_json(const JsonCursor& object) {
  REGEN_TRY(refuse_unknown_fields(object, {"job", "priority", "weight", "memory"}));
  // The same ranges as at registration, by the same reader.
  Json whole{{"name", "change"}, {"identity", "change"}, {"memory", kMaxBytes}};
  whole.update(object.value());
  whole.erase("job");
  REGEN_ASSIGN(const JobSpec spec, job_from_json(JsonCursor(whole, "change")));
  JobChange change;
  if (has_field(object, "priority")) change.priority = spec.priority;
  if (has_field(object, "weight")) change.weight = spec.weight;
  if (has_field(object, "memory")) change.memory = spec.memory;
  return change;
}

void apply(const JobChange& change, JobSpec& spec) {
  spec.priority = change.priority.value_or(spec.priority);
  spec.weight = change.weight.value_or(spec.weight);
  spec.memory = change.memory.value_or(spec.memory);
}

JobChange operator+(const JobChange& first, const JobChange& then) {
  JobChange both = then;
  if (!both.priority) both.priority = first.priority;
  if (!both.weight) both.weight = first.weight;
  if (!both.memory) both.memory = first.memory;
  return both;
}

}  // namespace regen::share
