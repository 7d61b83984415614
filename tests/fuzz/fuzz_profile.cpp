// Files of measurements: no text crashes the reader; what is read is written and read as the same; the
// good records of a file with bad ones are kept.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/execute/record/record_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using regen::execute::RecordCache;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string device = "cpu";
  std::size_t problems = 0;
  const auto lenient =
      RecordCache::parse(text, "fuzz", device, [&](const regen::Error&) { ++problems; });
  const auto strict = RecordCache::parse(text, "fuzz", device);
  if (strict.ok() != (lenient.ok() && problems == 0)) std::abort();
  if (!lenient.ok()) return 0;
  const std::string written = lenient->text(device);
  const auto again = RecordCache::parse(written, "again", device);
  if (!again.ok() || again->size() != lenient->size() || again->text(device) != written) {
    std::abort();
  }
  return 0;
}
