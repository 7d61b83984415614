// A training step as a chain of blocks, for the `chain` planner.
//
//   forward ops    a  b  c | d  e | f  g        a cut lies where one value alone is read later
//   blocks           0        1      2          (what must stay anyway is not counted)
//   ops behind     [loss g' f'] [e' d'] [c' b' a']   the reversals of blocks 2, 1, 0
//
// The forward pass is everything before the first op of another phase; the ops behind it are cut,
// in their order, into one reversal for each block. The reversal of block b reads nothing of the
// forward pass but values made in block b, its input (the value of block b - 1) and lasting
// values. An op joins the latest block that allows this, so that it runs as soon as it can.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "regen/graph/graph.h"

namespace regen {

struct ChainBlock {
  std::vector<OpId> ops;        // forward, ascending: what the first run runs
  TensorId value;               // what later blocks read; none: nothing, or only lasting values
  std::vector<OpId> reversal;   // ascending; may be empty
  std::vector<TensorId> saved;  // values of this block that its reversal reads, lasting ones aside
  bool reads_input = false;     // the reversal reads the value of the block before,
  bool reads_value = false;     // or that of this block (then it is in `saved`)

  // What a re-run has to run, given the block's input,
  std::vector<OpId> pass;                 // to have the value again,
  std::vector<OpId> save;                 // to have the value and everything in `saved`,
  std::array<std::vector<OpId>, 2> last;  // to have `saved`; [1]: the value is there already
};

struct ChainBlocks {
  std::vector<ChainBlock> blocks;  // at least one
  std::size_t num_forward = 0;     // ops of the forward pass

  // Forward values that stay from their first making until the reversal of block `lasts_until`
  // is over: those of ops that cannot run again, outputs of the step, and values that a reversal
  // reads although they belong to a block far away. kForever: outputs.
  IdVector<TensorId, char> lasting;
  IdVector<TensorId, std::int64_t> lasts_until;
  static constexpr std::int64_t kForever = -1;

  // No lasting values, and every re-run of a block reads its input: then the memory that the
  // planner adds up is that of the plan, to the byte. Otherwise it may be too high.
  bool exact = true;
  bool merged = false;  // blocks were joined to keep their number down
};

// At most `max_blocks` blocks; beyond them neighbours are joined.
ChainBlocks make_chain_blocks(const Graph& graph, std::size_t max_blocks);

}  // namespace regen
