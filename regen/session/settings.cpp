#include "regen/session/settings.h"

namespace regen::session {

double Settings::background_seconds(bool on_cpu) const {
  if (!plan_file.empty()) return 0;
  if (improve) return *improve;
  return on_cpu || work_limit > 0 ? 0 : kBackgroundSeconds;
}

Limits Settings::first_limits(bool on_cpu) const {
  Limits limits;
  if (work_limit > 0) limits.work = work_limit;
  if (time_limit > 0) limits.seconds = time_limit;
  if (time_limit > 0 || work_limit > 0) return limits;
  limits.seconds = background_seconds(on_cpu) > 0 ? kFirstSeconds : kWholeSeconds;
  return limits;
}

Limits Settings::background_limits(bool on_cpu) const {
  return {.seconds = background_seconds(on_cpu), .bytes = search_bytes};
}

Limits Settings::limits_within(double seconds) const {
  Limits limits;
  if (work_limit > 0) {
    limits.work = work_limit;
  } else {
    limits.seconds = seconds;
  }
  return limits;
}

}  // namespace regen::session
