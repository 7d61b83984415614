// Where a shared input of a name is.
#pragma once

#include <string>

#include "regen/base/result.h"

namespace regen::share {

// input-NAME.sock in the folder of the daemon's socket (address.h). Names are 1 to 60 letters,
// digits, dots, underscores and dashes.
Result<std::string> feed_socket(const std::string& name);

}  // namespace regen::share
