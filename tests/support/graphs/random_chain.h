// Small random chains for the planners of chains: every layer has one forward op and one backward
// op, and they differ in cost, in the sizes of what they make, and in what the backward op reads.
#pragma once

#include <vector>

#include "regen/base/random.h"
#include "regen/graph/graph.h"

namespace regen::testing {

struct ChainLayer {
  OpId forward;
  OpId backward;
  TensorId value;
  TensorId mask;  // a second output for the backward op alone; none if the layer has none
  bool reads_input = false;  // the backward op reads the value of the layer before,
  bool reads_value = false;  // its own,
  bool reads_mask = false;   // or its mask
};

struct RandomChain {
  Graph graph;
  std::vector<ChainLayer> layers;
  OpId loss;

  // The ops behind the forward pass by the block to which they belong, by the rule of
  // chain_blocks.h: an op that reads one layer's value only can run as soon as that is there, one
  // that reads nothing at once.
  struct Parts {
    std::vector<std::vector<OpId>> early;
    std::vector<std::vector<OpId>> late;
  };
  Parts parts() const;
};

struct RandomChainOptions {
  int max_layers = 9;
  bool in_place = false;  // some ops may overwrite an input
};

RandomChain random_chain(Random& random, const RandomChainOptions& options);

}  // namespace regen::testing
