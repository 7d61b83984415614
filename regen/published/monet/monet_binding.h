// A graph seen as an instance of MONeT's model, and the way back: which op and which variant
// stands for a node and a decision.
#pragma once

#include <vector>

#include "regen/graph/graph.h"
#include "regen/published/monet/format/format_monet.h"

namespace regen::published {

// One variant of a node's op.
struct MonetChoice {
  std::size_t choice = 0;    // among the variants of the op
  std::uint32_t number = 0;  // of the algorithm, or of the implementation
  bool overwrites = false;
  std::vector<std::uint32_t> extras;  // the intermediate nodes that it makes
};

struct MonetBinding {
  MonetInstance instance;
  std::vector<OpId> ops;  // by node; none for intermediate nodes and for a loss that was added
  std::vector<std::vector<MonetChoice>> choices;  // by node
  std::vector<char> once;                         // by forward node: it may not run again
  bool imported = false;                          // the instance is the one in the graph's file
};

// A graph that came from an instance is bound to that instance. Any other graph is cut before its
// first backward or update op: what lies before it are the forward nodes, the last of them in the
// role of the loss; every later op is the backward node of a stage of its own.
//   forward   variants of equal reads and outputs are the algorithms of a convolution; one that
//             overwrites an input is its in-place run; one with an extra output gives an
//             intermediate node
//   backward  each variant is an implementation; one that overwrites is taken in place of the
//             implementation with the same reads where the plan allows it
// Costs in flop are scaled so that rounding to ticks does not matter.
Result<MonetBinding> bind_monet(const Graph& graph);

}  // namespace regen::published
