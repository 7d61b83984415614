#include "regen/share/report/request_times.h"

#include "regen/base/json_fields.h"

namespace regen::share {
namespace {

Result<Nanoseconds> read_time(const JsonCursor& object, const char* key) {
  REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
  REGEN_ASSIGN(const double seconds, field.not_negative());
  if (seconds <= kMaxSeconds) return from_seconds(seconds);
  return field.error("found " + excerpt(field.value()) + ", expected at most 1e9 seconds");
}

}  // namespace

Json to_json(const RequestTimes& times) {
  Json json{{"count", times.count}};
  if (!times.recent) return json;
  json["p50_seconds"] = to_seconds(times.recent->p50);
  json["p95_seconds"] = to_seconds(times.recent->p95);
  return json;
}

Result<RequestTimes> request_times_from_json(const JsonCursor& object) {
  REGEN_TRY(refuse_unknown_fields(object, {"count", "p50_seconds", "p95_seconds"}));
  RequestTimes times;
  REGEN_ASSIGN(const JsonCursor count, required_field(object, "count"));
  REGEN_ASSIGN(times.count, count.whole(0, kMaxBytes));
  if (!has_field(object, "p50_seconds") && !has_field(object, "p95_seconds")) return times;
  Percentiles recent;
  REGEN_ASSIGN(recent.p50, read_time(object, "p50_seconds"));
  REGEN_ASSIGN(recent.p95, read_time(object, "p95_seconds"));
  times.recent = recent;
  return times;
}

}  // namespace regen::share
