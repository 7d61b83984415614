// Where the daemon serves its page: to this machine only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "regen/base/result.h"

namespace regen::share {

struct PageAddress {
  std::uint16_t port = 0;  // of 127.0.0.1; 0: any that is free
  std::string path = {};   // of a Unix socket, instead

  bool operator==(const PageAddress&) const = default;
};

// "127.0.0.1:PORT" or "unix:PATH". What other machines could reach is refused.
Result<PageAddress> parse_page_address(std::string_view text);
std::string to_string(const PageAddress& address);

}  // namespace regen::share
