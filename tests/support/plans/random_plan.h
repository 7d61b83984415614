// Random valid plans: a walk that runs the ops in a random order, drops, recomputes and moves
// what it draws on the way, and brings back what it needs.
#pragma once

#include <optional>

#include "regen/base/random.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::testing {

struct RandomPlanOptions {
  bool moves = true;   // offload and fetch
  double drop = 0.25;  // how likely a tensor is released after a step
  std::size_t max_steps = 400;
};

// Nothing if no attempt came through: it may drop what an unrepeatable op made. Each attempt
// drops less than the one before.
std::optional<Plan> random_plan(const Graph& graph, Random& random,
                                const RandomPlanOptions& options = {});

// Gives a valid plan addresses, with gaps between them.
void add_addresses(const Graph& graph, Random& random, Plan& plan);

}  // namespace regen::testing
