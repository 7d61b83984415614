// What PyTorch's schemas do not say about some operators and an executor must know.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "regen/execute/program.h"

namespace regen {

// Arguments (counted in the schema) that the kernel writes although its schema is silent about
// it: the running statistics of batch norm in training. A second run leaves them out, so that
// they are updated once; nothing else that the kernel returns depends on them.
std::vector<std::size_t> silently_written(const Node& node);

// A result that is a changed copy of an argument and depends on it alone, as functional batch
// norm returns new running statistics. Other results do not depend on that argument.
struct CarriedArgument {
  std::size_t argument = 0;
  std::size_t result = 0;
};
std::vector<CarriedArgument> carried_arguments(std::string_view op);

// Whether plain PyTorch has gradients switched on while the node runs: in the forward pass.
bool runs_with_gradients(const Node& node);

}  // namespace regen
