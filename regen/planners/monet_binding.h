// A graph seen as an instance of MONeT's program, and the way back: which op and which variant
// stands for a node and a decision.
#pragma once

#include <vector>

#include "regen/graph/format_monet.h"
#include "regen/graph/graph.h"
#include "regen/planners/monet_evaluator.h"

namespace regen {

// One variant of a node's op.
struct MonetChoice {
  std::size_t choice = 0;    // among the variants of the op
  std::uint32_t number = 0;  // of the algorithm, or of the implementation
  bool overwrites = false;
  std::vector<std::uint32_t> extras;  // the intermediate nodes that it makes, ascending
};

struct MonetBinding {
  MonetInstance instance;
  std::vector<OpId> ops;          // by node; none for intermediate nodes and an added loss
  std::vector<TensorId> tensors;  // by forward node; none for an added loss
  std::vector<std::vector<MonetChoice>> choices;  // by node
};

// A graph that came from an instance is bound to that instance. In any other graph
//   forward variants of equal reads and outputs become algorithms of a convolution,
//   one that overwrites its input becomes the in-place run, if the input's last forward reader it
//   is, variants of a backward op become implementations (those that overwrite are chosen later).
// Extra outputs of such graphs are not offered. Fails as monet_from_graph does.
Result<MonetBinding> bind_monet(const Graph& graph);

}  // namespace regen
