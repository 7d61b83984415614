// Regen graph JSON: no text crashes the reader, and a graph that is read survives its own format;
// the other writers may refuse it but not crash, and what they write can be read.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/graph/format_regen.h"
#include "regen/published/graph_formats.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using regen::published::GraphFormat;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto graph = regen::read_regen_graph(text, "fuzz");
  if (!graph.ok()) return 0;
  const auto written = regen::write_regen_graph(*graph);
  if (!written.ok()) std::abort();
  const auto again = regen::read_regen_graph(*written, "again");
  if (!again.ok() || !(*again == *graph)) std::abort();
  for (GraphFormat format : {GraphFormat::kLowerSets, GraphFormat::kMonet}) {
    const auto other = regen::published::write_graph(*graph, format);
    if (other.ok() && !regen::published::read_graph(*other, "other").ok()) std::abort();
  }
  if (!regen::published::write_graph(*graph, GraphFormat::kDot).ok()) std::abort();
  return 0;
}
