// Plans from a cache: no text crashes the reader, and what is read survives its own format.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/session/stored_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regen::session;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto stored = read_stored_plan(text, "fuzz");
  if (!stored.ok()) return 0;
  PlanReport report;
  report.origin = stored->origin;
  report.lower_bound = stored->origin.lower_bound;
  const auto again =
      read_stored_plan(write_stored_plan(report, stored->plan, stored->key), "again");
  if (!again.ok() || !(again->plan == stored->plan) || again->key != stored->key) std::abort();
  return 0;
}
