// Lifetimes as CSV, and the packer behind them: whatever parses can be written and read back, and
// small problems get a packing that the independent check accepts.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/plan/pack/lifetimes_csv.h"
#include "regen/plan/pack/pack_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = regen::parse_lifetimes_csv(text, "fuzz");
  if (!table.ok()) return 0;
  const auto again = regen::parse_lifetimes_csv(regen::format_lifetimes_csv(*table), "again");
  if (!again.ok() || *again != *table) std::abort();
  if (table->lifetimes.size() > 200) return 0;
  regen::PackOptions options;
  options.limits.work = 20'000;
  const auto packing = regen::pack(table->lifetimes, options);
  if (!packing.ok()) return 0;
  if (packing->height < packing->lower_bound || packing->lower_bound < packing->max_load)
    std::abort();
  const auto checked =
      regen::check_packing(table->lifetimes, packing->offsets, packing->height, options.alignment);
  if (!checked.ok()) std::abort();
  const auto packed = regen::format_lifetimes_csv(*table, packing->offsets);
  if (!regen::parse_lifetimes_csv(packed, "packed").ok()) std::abort();
  return 0;
}
