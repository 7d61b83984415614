#include "regen/report/label.h"

#include "regen/base/text.h"
#include "regen/base/utf8.h"

namespace regen::report {

std::string label(std::string_view text, std::size_t limit) {
  return as_utf8(on_one_line(text, limit));
}

}  // namespace regen::report
