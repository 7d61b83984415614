// The training step of a recurrent network, unrolled: a long graph in which two values go from each
// step to the next, and whose weights are updated one after the other while gradients are wanted.
#pragma once

#include "regen/graph/graph.h"

namespace regen::testing {

// Twelve ops for each step, and a few beside them.
Graph recurrent_graph(int steps);

}  // namespace regen::testing
