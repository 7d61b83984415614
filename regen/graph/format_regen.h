// The regen graph as JSON: everything a Graph holds, one tensor and one op a line
// (docs/reference/formats.md). Reading what was written gives an equal Graph.
#pragma once

#include <string>
#include <string_view>

#include "regen/base/result.h"
#include "regen/graph/graph.h"

namespace regen {

inline constexpr int kRegenGraphVersion = 1;

// `source` names the text in messages.
Result<Graph> read_regen_graph(std::string_view text, const std::string& source);

// Fails when a name is not UTF-8 or an attribute text is not a JSON object.
Result<std::string> write_regen_graph(const Graph& graph);

}  // namespace regen
