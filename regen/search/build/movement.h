// Movement added to a plan that only computes and releases: chosen values go to the host between
// two uses and come back for the next one.
//
//   steps      a  b  c  | C  B  A        a's value is read by b and by A
//   with a     a >a b  c -a | C <a B A   >a offload, -a release, <a fetch
//
// - A value is offloaded once, as soon as it is made: the copy can overlap with its readers. It may
//   be away several times; the copy stays on the host for later fetches.
// - It is released as late as possible in an absence, because a release waits for the offload. It
//   must be released when the bytes would exceed `limit`. A value that is never released is not
//   offloaded.
// - Where the host is full, the value stays on the device. A value that was away takes its host
//   bytes for the whole step. This is exact for values that are away over the turn: all of them are
//   on the host at the same time.
// - It is fetched one op ahead of its next use or, if the copy takes longer, further ahead; later
//   where its bytes would exceed the limit (fetch_ahead.h).
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

// Where a tensor may be away: between two consecutive computes among those that read or make it,
// counted over the computes of the plan. The second one does not make it.
struct Absence {
  TensorId tensor;
  std::size_t after = 0;
  std::size_t before = 0;
  double lead = 1;  // how far ahead its fetch should be, in durations of the copy
};

// `steps` computes and releases, as plan_from_sequence makes them; absences of one tensor ascend.
// With a limit of 0 every value leaves at once and comes back late, which gives the least peak.
// With a limit of that peak or more, the peak is at most the limit, unless the host is full.
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
