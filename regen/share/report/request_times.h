// What a job says about the requests that it answers: how long they took, from asking for the device until it was given back.
#pragma once

#include <cstdint>
#include <optional>

#include "regen/base/json.h"
#include "regen/share/report/recent_times.h"

namespace regen::share {

struct RequestTimes {
  std::int64_t count = 0;  // since it came
  std::optional<Percentiles> recent = {};

  bool operator==(const RequestTimes&) const = default;
};

Json to_json(const RequestTimes& times);
Result<RequestTimes> request_times_from_json(const JsonCursor& object);

}  // namespace regen::share
