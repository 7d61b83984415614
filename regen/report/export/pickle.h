// JSON values as a pickle: objects become dicts, arrays lists. No class is named in it, so that loading one
// runs nothing.
#pragma once

#include <string>

#include "regen/base/json.h"

namespace regen::report {

// Protocol 2, in those of its codes that PyTorch's memory viewer reads too. Texts must be UTF-8.
std::string pickle(const Json& value);

}  // namespace regen::report
