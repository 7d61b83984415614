// Files of measured links: no text crashes the reader, and every rate that is used is one.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/session/link_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regen::session;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto nothing = [](std::string_view) {};
  const Links links = read_links(text, "fuzz", nothing);
  for (const auto& [name, link] : links) {
    for (const double rate : {link.to_host, link.to_device, link.both}) {
      if (!(rate >= 1) || !std::isfinite(1e18 / rate)) std::abort();
    }
  }
  const auto problem = [](std::string_view) { std::abort(); };
  if (read_links(write_links(links), "again", problem) != links) std::abort();
  return 0;
}
