// Small random training steps that use everything a graph can say: views, several outputs,
// variants with other reads, masks, in-place runs, workspaces, re-run costs, random and
// unrepeatable ops, updates, readers of updated parameters, tensors of 0 bytes.
#pragma once

#include "regen/base/random.h"
#include "regen/graph/graph.h"

namespace regen::testing {

struct RandomGraphOptions {
  int min_layers = 1;
  int max_layers = 6;
  Bytes max_bytes = 20;   // of a tensor or a workspace
  int max_cost = 9;       // costs are whole numbers, so that sums are exact
  double oddities = 0.1;  // how often ops cannot be repeated, draw random numbers, and so on
};

Graph random_training_graph(Random& random, const RandomGraphOptions& options = {});

}  // namespace regen::testing
