#include "regen/share/web/page_address.h"

#include "regen/base/text.h"
#include "regen/base/units.h"
#include "regen/share/protocol/address.h"

namespace regen::share {
namespace {

constexpr std::string_view kLoopback = "127.0.0.1:";
constexpr std::string_view kUnix = "unix:";

}  // namespace

Result<PageAddress> parse_page_address(std::string_view text) {
  if (text.starts_with(kUnix)) {
    const std::string path(text.substr(kUnix.size()));
    REGEN_TRY(socket_address(path));
    return PageAddress{.path = path};
  }
  if (text.starts_with(kLoopback)) {
    const auto port = parse_int(text.substr(kLoopback.size()));
    if (port.ok() && *port >= 0 && *port <= UINT16_MAX) {
      return PageAddress{.port = static_cast<std::uint16_t>(*port)};
    }
  }
  return bad_input("bad page address " + in_quotes(text) +
                   ", expected 127.0.0.1:PORT (port 0: any that is free) or unix:PATH; other "
                   "machines reach it by ssh -L");
}

std::string to_string(const PageAddress& address) {
  return address.path.empty() ? std::string(kLoopback) + std::to_string(address.port)
                              : std::string(kUnix) + address.path;
}

}  // namespace regen::share
