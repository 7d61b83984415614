// Movement in a plan that only computes and releases: chosen values go to the host while nobody
// reads them, and come back for their next use.
//
//   steps      a  b  c  | C  B  A        a's value is read by b and by A
//   with a     a >a b  c -a | C <a B A   >a offload, -a release, <a fetch
//
// - A value is offloaded once, as soon as it is made, since the copy can run beside all that reads
//   it. It may be away several times: the copy stays on the host for later fetches.
// - It is released as late as possible in an absence: a release waits for the offload, and until
//   the bytes are wanted there is nothing to wait for. What is wanted is said by `limit`. A value
//   that is never released is not offloaded either.
// - Where the host is full, it stays. A value that was away takes its bytes there for the whole
// step,
//   which is exact for values that are away over the turn: then all of them are there together.
// - It is fetched one op ahead of its next use or, if the copy takes longer, further ahead; later
//   where the bytes would not be within the limit (fetch_ahead.h).
#pragma once

#include <span>
#include <vector>

#include "regen/cost/device.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::search {

struct MovedSteps {
  std::vector<Step> steps;
  Bytes peak_bytes = 0;   // fixed bytes included
  std::size_t moved = 0;  // fetches
};

// Where a tensor may be away: between two computes that follow each other among those that read or
// make it, counted over the computes of the plan. It is not made by the second.
struct Absence {
  TensorId tensor;
  std::size_t after = 0;
  std::size_t before = 0;
  double lead = 1;  // how many times the copy's duration its fetch should be ahead
};

// `steps` computes and releases, as plan_from_sequence makes them; absences of one tensor ascend.
// With a limit of 0 everything leaves at once and comes back late, which gives the least peak; with
// a limit of that peak or more the peak is at most the limit, unless the host is full.
MovedSteps move_tensors(const Graph& graph, const std::vector<Step>& steps,
                        const std::vector<Absence>& absences, const Link& link, Bytes limit,
                        Bytes host_limit = kMaxBytes);

// Absences over the turn from the forward to the backward pass: those of tensors with `leaves` set
// that are made once, before `turn` (the first op of the backward pass), if at least one other op
// runs between the last use before that op and the first use after.
std::vector<Absence> absences_over_turn(const Graph& graph, const std::vector<Step>& steps,
                                        OpId turn, const IdVector<TensorId, char>& leaves);

MovedSteps move_tensors(const Graph& graph, const std::vector<Step>& steps, OpId turn,
                        const IdVector<TensorId, char>& leaves, const Link& link, Bytes limit,
                        Bytes host_limit = kMaxBytes);

}  // namespace regen::search
