// Device files and cost tables: no text crashes the readers, and what is read survives a round
// trip through the writers.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/cost/cost_table.h"
#include "regen/cost/device.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto device = regen::parse_device(text, "fuzz"); device.ok()) {
    const auto again = regen::parse_device(regen::write_device(*device), "again");
    if (!again.ok() || !(*again == *device)) std::abort();
  }
  if (const auto table = regen::parse_cost_table(text, "fuzz"); table.ok()) {
    const auto again = regen::parse_cost_table(regen::write_cost_table(*table), "again");
    if (!again.ok() || !(*again == *table)) std::abort();
  }
  return 0;
}
