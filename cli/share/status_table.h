// The daemon's report for people.
#pragma once

#include <string>

#include "regen/base/json.h"

namespace regen::cli {

// A line for each device, and a table of its jobs.
std::string share_status_text(const Json& report);

}  // namespace regen::cli
