// Time and memory of each kind of run of a block: the input of the dynamic program of the `chain`
// planner. Each is found by going through the steps that the run has in the plan, so that in-place
// variants, workspaces and values that are released inside a block count as the judge counts them.
#pragma once

#include <array>
#include <vector>

#include "regen/search/heuristics/chain_blocks.h"

namespace regen::search {

// The peak leaves out fixed tensors, values that other blocks hold, and, for forward runs, `base`.
struct RunCost {
  Bytes peak = 0;
  double cost = 0;
};

// What becomes of a block's input while the block runs.
enum ChainInput : std::uint8_t {
  kGoes,    // released after its last use here
  kStays,   // still needed afterwards
  kOthers,  // still needed afterwards, and counted where it is needed
};

struct BlockCosts {
  Bytes input_bytes = 0;  // 0 for fixed and lasting ones
  Bytes value_bytes = 0;
  Bytes saved_bytes = 0;
  bool reads_input = false;       // the late part does
  bool saves_value = false;       // some part reads the value,
  bool late_reads_value = false;  // namely the late one
  bool has_early = false;
  std::array<bool, 3> needs_input{};  // what is pending cannot be done without the input

  // Forward runs, [0] again, [1] for the first time.
  std::array<std::array<RunCost, 3>, 2> pass{};  // by ChainInput
  std::array<std::array<RunCost, 2>, 2> save{};  // [1]: the input is counted by others
  // The run right before what is pending, [Pending][input is counted by others]; for the last
  // block the first run, for the others a re-run. A value that is there is not counted.
  std::array<std::array<RunCost, 2>, 3> last{};
  // The reversal, [Pending][input is counted by others], and the early part by itself, [the value
  // stays]. With everything that the ops behind the forward pass have made and still need, lasting
  // values, the block's saved values, and the input unless others count it.
  std::array<std::array<RunCost, 2>, 3> reversal{};
  std::array<RunCost, 2> early{};

  // What is there anyway when this is pending (a value that is there aside), and when the block
  // runs for the first time.
  std::array<Bytes, 3> base{};
  Bytes first_base = 0;
};

std::vector<BlockCosts> chain_costs(const Graph& graph, const ChainBlocks& chain);

}  // namespace regen::search
