// A list of instructions cut into windows: stretches short enough that a job can be stopped between
// any two of them without delay.
//
//   seconds   .4  .3   0  .5  2.0   0  .1       bound 1
//   windows   [ .4  .3   0 ][ .5 ][ 2.0   0 ][ .1 ]
//
// Each window is as long as the bound allows, so there are as few as can be. A single instruction
// that takes longer than the bound is a window of its own; what takes no time stays with what it
// follows.
#pragma once

#include <span>
#include <vector>

#include "regen/execute/instructions.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen {

inline constexpr double kWindowSeconds = 1e-3;

// The first instruction of each window, ascending from 0; empty for an empty list.
std::vector<std::size_t> cut_windows(std::span<const double> seconds, double bound);

// What each instruction takes on the compute queue, as the graph's measured costs predict it for
// the variant in the plan: zero for all but computes.
std::vector<double> predicted_seconds(const InstructionList& list, const Graph& graph,
                                      const Plan& plan);

}  // namespace regen
