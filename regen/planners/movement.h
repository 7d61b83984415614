// Movement in a plan that only computes and releases: chosen forward values go to the host while
// nobody reads them, and come back for the backward pass.
//
//   steps      a  b  c  | C  B  A        a's value is read by b and by A
//   with a     a >a b  c -a | C <a B A   >a offload, -a release, <a fetch
//
// - A value is offloaded as soon as it is made, since the copy can run beside all that reads it.
// - It is released as late as possible after its last forward use: a release waits for the
//   offload, and until the bytes are wanted there is nothing to wait for. What is wanted is said
//   by `limit`. A value that is never released is not offloaded either.
// - It is fetched one op ahead of its first backward use or, if the copy takes longer, further
//   ahead; later where the bytes would not be within the limit (fetch_ahead.h).
#pragma once

#include <vector>

#include "regen/cost/device.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen {

struct MovedSteps {
  std::vector<Step> steps;
  Bytes peak_bytes = 0;   // fixed bytes included
  std::size_t moved = 0;  // values that leave
};

// `steps` computes and releases, as plan_from_sequence makes them. A tensor with `leaves` set
// moves if it is made once, before `turn` (the first op of the backward pass), and at least one
// other op runs between its last use before that op and its first use after. With a limit of 0
// everything leaves at once and comes back late, which gives the least peak; with a limit
// of that peak or more the peak is at most the limit.
MovedSteps move_tensors(const Graph& graph, const std::vector<Step>& steps, OpId turn,
                        const IdVector<TensorId, char>& leaves, const Link& link, Bytes limit);

}  // namespace regen
