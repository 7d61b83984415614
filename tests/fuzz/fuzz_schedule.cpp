// Schedules of the lower-set solvers: no text crashes the reader, what was read survives its own
// format, and no schedule crashes its execution. The text is a schedule for one small graph.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/published/lower_sets/format/schedule_run.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const regen::published::LowerSetFile file =
      regen::published::read_lower_set_file(
          "4 4\n0 8 0\n1 4 /W\n2 8 _\n3 4 _\n"
          "forward\n2 1\n0 _\n1 _\n2\nConv\n{}\nforward\n1 1\n2 _\n3\nReLU\n{}\n"
          "backward\n3 2\n2 gradient\n0 input\n1 input\n0\n1\nConv\n{}\n"
          "backward\n2 1\n3 gradient\n3 output\n2\nReLU\n{}\n",
          "graph")
          .value();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  regen::published::looks_like_schedule(text);
  const auto schedule = regen::published::read_schedule(text, "fuzz");
  if (!schedule.ok()) return 0;
  const auto again =
      regen::published::read_schedule(regen::published::write_schedule(*schedule), "again");
  if (!again.ok() || *again != *schedule) std::abort();
  const auto run = regen::published::run_schedule(file, *schedule, "fuzz");
  if (run.ok() && run->activation_peak_bytes > run->peak_bytes) std::abort();
  return 0;
}
