// The stays of a plan's tensors on the device as boxes: steps one way, addresses the other.
//
//   address |   +-----------+ +----+
//           |   |     a     | |  c |      a stays from its op to its release
//           |   +-----------+-+----+
//           |   +--+ +-------------+
//           |   |ws| |      b      |      a workspace lives for one step
//           |___+--+_+_____________+___ step
//
// Boxes of one address space never overlap. What lives at a step is the boxes that are open then:
// their bytes and the fixed ones are what the judge counts for it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "regen/graph/graph.h"
#include "regen/plan/explain.h"
#include "regen/plan/plan.h"

namespace regen::report {

struct Box {
  TensorId tensor;  // none for a workspace
  OpId op;          // that made it, or whose workspace it is; of a fetched tensor, its maker
  Provenance origin = Provenance::kFirstRun;
  std::size_t from = 0;        // the first step at which it counts
  std::size_t to = 0;          // the first at which it does not; the number of steps if it stays
  std::size_t allocation = 0;  // its place in Plan::addresses
  Bytes address = 0;
  Bytes bytes = 0;

  bool operator==(const Box&) const = default;
};

// Ascending in `from`. An allocation has one box, but where a tensor takes over the memory of one
// that its op overwrites, the second is a box of its own behind the first. `addresses` is one for
// each allocation, as Plan::addresses; the plan must be valid.
std::vector<Box> boxes(const Graph& graph, const Plan& plan, std::span<const Bytes> addresses);

}  // namespace regen::report
