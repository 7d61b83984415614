// Checkpoints as the published Checkmate artifact counts them: it keeps checkpoints to the very end
// of the step, walks candidates in the order of CPython's sets, and needs a mirrored graph. It
// reproduces the published numbers to the digit, dead checkpoints included.
#pragma once

#include "regen/search/build/accounting.h"

namespace regen::published {

const search::Accounting& artifact_accounting();

// Whether the problem asks for it.
bool counts_as_artifact(const search::Problem& problem);

// The number n of forward ops if the graph has Checkmate's shape: n forward ops, one loss, n
// backward ops where op 2n - i is the gradient of op i, each op with one output.
Result<std::size_t> mirrored_forward_ops(const Graph& graph);

}  // namespace regen::published
