// The file in which links between the host and devices are kept: {"name of the device": [bytes per
// second to the host, to the device, both together]}.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "regen/cost/device.h"

namespace regen::session {

// By the name of the device.
using Links = std::map<std::string, Link>;

// What cannot be used is left out, and `on_problem` is called with a line on it.
Links read_links(std::string_view text, std::string_view source,
                 const std::function<void(std::string_view)>& on_problem);
std::string write_links(const Links& links);

}  // namespace regen::session
