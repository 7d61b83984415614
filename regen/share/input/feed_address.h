// Where a shared input of a name is.
#pragma once

#include <string>

#include "regen/base/result.h"

namespace regen::share {

// input-NAME.sock in REGEN_INPUT_FOLDER, else in regen/ of XDG_RUNTIME_DIR, else in /tmp/regen-UID.
// Names are 1 to 60 letters, digits, dots, underscores and dashes.
Result<std::string> feed_socket(const std::string& name);

}  // namespace regen::share
