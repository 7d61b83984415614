// The graph as a drawing for Graphviz: `dot -Tsvg`.
#pragma once

#include <string>

#include "regen/graph/graph.h"

namespace regen {

// One node an op, coloured by phase and darker the more bytes it makes; one edge for each op
// that reads another's tensor, labelled with the bytes. Fixed tensors are left out. Above 5,000
// ops labels are left out too: such a drawing is looked at from afar.
std::string write_dot(const Graph& graph);

}  // namespace regen
