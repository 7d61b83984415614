#include "regen/share/protocol/address.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "regen/base/text.h"

namespace regen::share {

std::string default_socket() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string path = variable("REGEN_SHARE_SOCKET"); !path.empty()) return path;
  if (const std::string folder = variable("XDG_RUNTIME_DIR"); !folder.empty()) {
    return folder + "/regen/share.sock";
  }
  return "/tmp/regen-" + std::to_string(::getuid()) + "/share.sock";
}

Result<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path ||
      path.find('\0') != std::string::npos) {
    return bad_input("socket path " + in_quotes(path) + " has " + std::to_string(path.size()) +
                     " bytes, expected 1 to " + std::to_string(sizeof address.sun_path - 1));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

}  // namespace regen::share
