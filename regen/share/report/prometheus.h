// The daemon's report as metrics, in Prometheus's text format.
#pragma once

#include <string>

#include "regen/base/json.h"

namespace regen::share {

// `report` is what to_json(DaemonStatus) gives.
std::string prometheus_text(const Json& report);

}  // namespace regen::share
