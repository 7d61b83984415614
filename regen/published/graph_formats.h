// Graph files of every supported format, recognised by their content (docs/reference/formats.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "regen/base/result.h"
#include "regen/graph/graph.h"

namespace regen::published {

enum class GraphFormat : std::uint8_t {
  kRegen,      // JSON with everything a Graph holds
  kLowerSets,  // the text of the lower-set solvers
  kMonet,      // a MONeT instance as JSON
  kDot,        // a drawing for Graphviz; written only
};

// "regen", "lower-sets", "monet", "dot".
std::string_view to_string(GraphFormat format);
Result<GraphFormat> parse_format(std::string_view name);

// By the extension: .json regen, .txt lower-sets, .dot and .gv dot; nothing for others.
std::optional<GraphFormat> format_of_path(std::string_view path);

// Looks at the beginning of the text only, so what it names may still be refused by its reader.
Result<GraphFormat> recognise_format(std::string_view text);

// Reads any of the formats but DOT; `source` names the text in messages.
Result<Graph> read_graph(std::string_view text, const std::string& source);

// Fails when the format cannot express the graph.
Result<std::string> write_graph(const Graph& graph, GraphFormat format);

}  // namespace regen::published
