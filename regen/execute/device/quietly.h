// Work on a device where an error cannot be returned: in destructors, and while another error is on
// its way. After an error of CUDA every later call fails too; what the process reports, or ends with,
// is the first one.
#pragma once

#include <cstdint>
#include <exception>
#include <string_view>

namespace regen::execute {

enum class Lost : std::uint8_t {
  kDrop,   // another error is reported already
  kPrint,  // not reported yet: one line on standard error, once for the process
};

void note_lost_error(std::string_view text, Lost lost) noexcept;

template <typename Work>
void quietly(Lost lost, Work&& work) noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    note_lost_error(error.what(), lost);
  } catch (...) {
    note_lost_error("an error without a text", lost);
  }
}

}  // namespace regen::execute
