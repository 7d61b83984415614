// The page for a browser: made from regen/share/page/ when regen is built (cmake/page.cmake).
#pragma once

#include <string>

namespace regen::share {

std::string page_template();

}  // namespace regen::share
