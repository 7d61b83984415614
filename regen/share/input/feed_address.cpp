#include "regen/share/input/feed_address.h"

#include <algorithm>
#include <filesystem>

#include "regen/base/text.h"
#include "regen/share/address.h"

namespace regen::share {

Result<std::string> feed_socket(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  if (name.empty() || name.size() > 60 || !plain) {
    return bad_input("bad name of a shared input " + in_quotes(name) +
                     ", expected 1 to 60 letters, digits, '.', '_' and '-'");
  }
  const std::filesystem::path folder = std::filesystem::path(default_socket()).parent_path();
  const std::string path = (folder / ("input-" + name + ".sock")).string();
  REGEN_TRY(socket_address(path));
  return path;
}

}  // namespace regen::share
