// A training step as a chain of blocks, for the `chain` planner.
//
//   forward ops    a  b  c | d  e | f  g        a cut lies where one value alone is read later
//   blocks           0        1      2          (what must stay anyway is not counted)
//   ops behind     [loss g' f'] (e') [d'] (c') [b' a']
//
// The forward pass is everything before the first op of another phase. The ops behind it are cut,
// in their order, into what each block needs to be reversed: (first what needs no forward value but
// the block's own), called its early part, then [what may read all values made in the block, and
// its input, the value of the block before], its late part. Lasting values may be read anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "regen/graph/graph.h"

namespace regen::search {

struct ChainBlock {
  std::vector<OpId> ops;    // forward, ascending: what the first run runs
  TensorId value;           // what later blocks read; none: nothing, or only lasting values
  std::vector<OpId> early;  // ascending, both may be empty; the last block has only a late part
  std::vector<OpId> late;
  // Values of this block, lasting ones aside, that the two parts or the late part alone read.
  std::vector<TensorId> saved;
  std::vector<TensorId> saved_late;
  bool reads_input = false;  // the late part does

  // What a re-run has to run, given the block's input, to have
  std::vector<OpId> pass;                 // the value,
  std::vector<OpId> save;                 // the value and `saved`,
  std::array<std::vector<OpId>, 3> last;  // what is still to be read, by Pending
};

// What of a block is still to be done when the blocks behind it are reversed.
enum Pending : std::uint8_t {
  kBoth,           // both parts
  kLate,           // the late part; the value is gone
  kLateWithValue,  // the late part; the value is there for it
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

// A chain of more than `max_blocks` blocks is joined into about `joined_blocks` of equal cost.
struct ChainBlockLimits {
  std::size_t max_blocks = 0;
  std::size_t joined_blocks = 0;
};
ChainBlocks make_chain_blocks(const Graph& graph, const ChainBlockLimits& limits);

}  // namespace regen::search
