// Lower-set text: no text crashes the reader or the import, the file survives its own format, and
// its graph survives both lower-set text and regen JSON.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/published/lower_sets/format/format_lower_sets.h"
#include "regen/published/graph_formats.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using regen::GraphFormat;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = regen::read_lower_set_file(text, "fuzz");
  if (!file.ok()) return 0;
  const auto again = regen::read_lower_set_file(regen::write_lower_set_file(*file), "again");
  if (!again.ok() || !(*again == *file)) std::abort();
  regen::lower_set_statistics(*file);
  const auto graph = regen::graph_from_lower_sets(*file, "fuzz");
  if (!graph.ok()) return 0;
  for (GraphFormat format : {GraphFormat::kLowerSets, GraphFormat::kRegen}) {
    const auto written = regen::write_graph(*graph, format);
    if (!written.ok()) std::abort();
    const auto back = regen::read_graph(*written, "back");
    if (!back.ok() || !(*back == *graph)) std::abort();
  }
  return 0;
}
