// A part of what is left of an effort, for a search that is one of several.
#pragma once

#include <algorithm>
#include <cstdint>

#include "regen/base/limit.h"

namespace regen::search {

inline Limits fraction_of(const Effort& effort, double fraction) {
  Limits limits = effort.limits();
  limits.seconds = std::max(0.0, effort.seconds_left()) * fraction;
  const auto work = static_cast<double>(std::max<std::int64_t>(0, effort.work_left()));
  if (limits.work != Limits{}.work) limits.work = static_cast<std::int64_t>(work * fraction);
  return limits;
}

}  // namespace regen::search
