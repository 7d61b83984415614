// MONeT instances: no text crashes the reader or the import, the instance survives its own format,
// and its graph survives both MONeT and regen JSON.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/published/graph_formats.h"
#include "regen/published/monet/format/format_monet.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using regen::published::GraphFormat;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto instance = regen::published::read_monet_instance(text, "fuzz");
  if (!instance.ok()) return 0;
  const auto written = regen::published::write_monet_instance(*instance);
  if (!written.ok()) std::abort();
  const auto again = regen::published::read_monet_instance(*written, "again");
  if (!again.ok() || !(*again == *instance)) std::abort();
  const auto graph = regen::published::graph_from_monet(*instance, "fuzz");
  if (!graph.ok()) return 0;
  for (GraphFormat format : {GraphFormat::kMonet, GraphFormat::kRegen}) {
    const auto other = regen::published::write_graph(*graph, format);
    if (!other.ok()) std::abort();
    const auto back = regen::published::read_graph(*other, "back");
    if (!back.ok() || !(*back == *graph)) std::abort();
  }
  return 0;
}
