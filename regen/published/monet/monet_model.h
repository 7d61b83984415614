// MONeT's model with its numbers rounded as the published code rounds them, restricted to a mode
// and arranged by stage (docs/reference/planners.md, "monet").
//
//   stage 0       the forward pass
//   stage t > 0   recomputes forward tensors, then runs backward node loss + t
//
// Stages touch only through the forward tensors stored between them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "regen/published/monet/format/format_monet.h"
#include "regen/published/monet/monet_mode.h"

namespace regen::published {

using Kib = std::int64_t;
using Ticks = std::int64_t;  // of 10 microseconds

Kib monet_kib(Bytes bytes);              // rounded up
Kib monet_workspace_kib(double mib);     // rounded up, may be negative
Ticks monet_ticks(double milliseconds);  // rounded up

// One way to run a convolution; better ways need more workspace.
struct MonetAlgorithm {
  std::uint32_t number = 0;
  Ticks ticks = 0;
  Kib workspace = 0;
};

struct MonetForward {
  Kib ram = 0;
  Kib local = 0;                             // of all local tensors
  std::vector<std::uint32_t> local_tensors;  // the forward ones
  std::vector<std::uint32_t> inputs;
  std::vector<std::uint32_t> intermediates;
  std::optional<std::uint32_t> parent;      // of an intermediate node
  std::optional<std::uint32_t> overwrites;  // what it may run in place of
  bool in_place = false;  // has an in-place cost: as `overwrites`, or its parent's
  Ticks first_ticks = 0, again_ticks = 0;
  Ticks in_place_ticks = 0;  // what running in place adds, mostly negative
  Kib first_workspace = 0, again_workspace = 0, in_place_workspace = 0;
  bool once = false;  // may not run again
  bool conv = false;
  // By rising workspace and falling ticks; empty unless `conv`.
  std::vector<MonetAlgorithm> first_algorithms, again_algorithms;
};

struct MonetImplementation {
  std::uint32_t number = 0;
  std::vector<std::uint32_t> args;  // forward tensors, ascending
  Ticks ticks = 0;                  // without those of a convolution's algorithm
  Kib workspace = 0;
};

struct MonetStage {
  Kib held_forward = 0;   // while forward tensors are made: gradients and fixed tensors
  Kib held_backward = 0;  // while the backward node runs: the same and what it makes
  std::vector<MonetImplementation> implementations;
  std::vector<MonetAlgorithm> algorithms;  // of a convolution's backward node, else empty
  Ticks least_ticks = 0;                   // of the backward node
};

struct MonetModel {
  std::vector<MonetForward> nodes;  // forward and intermediate nodes and the loss: V
  std::vector<MonetStage> stages;   // T
  // The last stage in which a stored copy can be of use, for each node.
  std::vector<std::uint32_t> last_use;
  Kib budget = 0;
  bool checkpointing = true;

  std::size_t num_nodes() const { return nodes.size(); }
  std::size_t num_stages() const { return stages.size(); }
};

// Fails where the mode leaves an op without a way to run, and where lists contradict each other.
// `once` marks forward nodes that may not run again; empty: none.
Result<MonetModel> make_monet_model(const MonetInstance& instance, const MonetMode& mode,
                                    Bytes budget, const std::vector<char>& once = {});

}  // namespace regen::published
