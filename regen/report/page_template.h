// The page without a report: made from regen/report/page/ when regen is built (cmake/page.cmake).
#pragma once

#include <string>

namespace regen::report {

// Has `@REPORT@` where the JSON goes, once.
std::string page_template();

}  // namespace regen::report
