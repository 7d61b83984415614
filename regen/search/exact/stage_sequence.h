// From the S of a stage schedule (stage_problem.h) to the sequence of ops that realises it with the
// fewest re-runs.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "regen/search/exact/stage_problem.h"

namespace regen::search {

// Whether a stage begins with a value. Asked for the stages in which the value can be of use.
using CarriedInto = std::function<bool(std::size_t stage, ValueId v)>;

// Each stage makes what the next one begins with and it does not, then its own op, and before each
// op what that reads and the stage does not begin with. Nothing if an op would have to run again
// that may not.
std::optional<std::vector<OpId>> sequence_of_stages(const StageProblem& stages,
                                                    const CarriedInto& carried_into);

}  // namespace regen::search
