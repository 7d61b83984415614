#include "regen/execute/device/quietly.h"

#include <atomic>
#include <cstdio>

namespace regen::execute {

void note_lost_error(std::string_view text, Lost lost) noexcept {
  static std::atomic<bool> printed = false;
  if (lost == Lost::kDrop || printed.exchange(true)) return;
  text = text.substr(0, text.find('\n'));  // a backtrace follows
  std::fprintf(stderr, "regen: the device has failed: %.*s\n", static_cast<int>(text.size()),
               text.data());
}

}  // namespace regen::execute
