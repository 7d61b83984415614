// What a node's arguments refer to.
#pragma once

#include <cstdint>
#include <vector>

#include "regen/execute/program/program.h"

namespace regen::execute {

// The numbers in {"value": i} and {"scalar": i}, in the order of the arguments; not checked.
std::vector<std::int64_t> value_references(const Node& node);
std::vector<std::int64_t> scalar_references(const Node& node);

// The values a node reads, in the order of its arguments, with repetitions. The program is valid.
std::vector<ValueId> values_read(const Node& node);

}  // namespace regen::execute
