// The canonical strategy of a chain of lower sets, as the published solvers execute it (Kusumoto et
// al., NeurIPS 2019): orders over the blocks and variables of a lower-set file.
//
//   forward    block by block; of each only the values that a later block reads stay
//   backward   from the last block to the first: what is gone of the block is computed again, the
//              last block too; then the gradients of the block's own values are made, from the
//              last function to the first
//
// So a function whose inputs lie in different blocks runs backward in parts, and the gradient of
// its output waits with its inputs until the earliest of them. Gradients of parameters come with
// the first part. A function that reads its own output backward, ReLU say, usually does so when
// that value is gone: it is then computed right before and forgotten right after. Every forget
// stands directly after the last order that touches the value.
#pragma once

#include <cstdint>
#include <span>

#include "regen/published/lower_sets/format/format_lower_sets.h"
#include "regen/published/lower_sets/format/schedule_text.h"

namespace regen::published {

// `chain_block`: for each forward block of the file, in which block of the chain it is (from 0).
// `order`: the forward blocks in the order in which they run.
Schedule canonical_schedule(const LowerSetFile& file, std::span<const std::uint32_t> order,
                            std::span<const std::uint32_t> chain_block);

// Whether a forward block's backward twin reads the block's own output.
bool reads_own_output(const LowerSetFile& file, std::uint32_t function);

}  // namespace regen::published
