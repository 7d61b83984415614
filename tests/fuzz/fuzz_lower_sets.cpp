// Lower-set text: no text crashes the reader or the import, the file survives its own format, and
// its graph survives both lower-set text and regen JSON.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/published/graph_formats.h"
#include "regen/published/lower_sets/format/format_lower_sets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using regen::published::GraphFormat;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = regen::published::read_lower_set_file(text, "fuzz");
  if (!file.ok()) return 0;
  const auto again =
      regen::published::read_lower_set_file(regen::published::write_lower_set_file(*file), "again");
  if (!again.ok() || !(*again == *file)) std::abort();
  regen::published::lower_set_statistics(*file);
  const auto graph = regen::published::graph_from_lower_sets(*file, "fuzz");
  if (!graph.ok()) return 0;
  for (GraphFormat format : {GraphFormat::kLowerSets, GraphFormat::kRegen}) {
    const auto written = regen::published::write_graph(*graph, format);
    if (!written.ok()) std::abort();
    const auto back = regen::published::read_graph(*written, "back");
    if (!back.ok() || !(*back == *graph)) std::abort();
  }
  return 0;
}
