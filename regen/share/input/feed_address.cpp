#include "regen/share/input/feed_address.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "regen/base/text.h"
#include "regen/share/protocol/address.h"

namespace regen::share {
namespace {

// Not the folder of the daemon's socket, which may belong to another user.
std::string input_folder() {
  const char* chosen = std::getenv("REGEN_INPUT_FOLDER");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') return std::string(runtime) + "/regen";
  return "/tmp/regen-" + std::to_string(::getuid());
}

}  // namespace

Result<std::string> feed_socket(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  if (name.empty() || name.size() > 60 || !plain) {
    return bad_input("bad name of a shared input " + in_quotes(name) +
                     ", expected 1 to 60 letters, digits, '.', '_' and '-'");
  }
  const std::string path = input_folder() + "/input-" + name + ".sock";
  REGEN_TRY(socket_address(path));
  return path;
}

}  // namespace regen::share
