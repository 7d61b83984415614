// The layout of graphs that are too large for Graphviz to lay out itself.
#pragma once

#include <string>

#include "regen/graph/graph.h"

namespace regen::cli {

// Gives every op of a DOT text, as write_graph() makes it, a place: forward down on the left, the
// rest up on the right, so that an op and its gradient stand side by side:
//
//   conv1  <-- grad conv1
//     v            ^
//   conv2  <-- grad conv2
//     v            ^
//   loss  -->  grad loss
//
// `neato -n2` draws such a text in time linear in its size.
std::string with_positions(const Graph& graph, std::string dot);

}  // namespace regen::cli
