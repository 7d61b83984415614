// What PyTorch's schemas do not say about some operators and an executor must know.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "regen/execute/program/program.h"

namespace regen::execute {

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

// Arguments (counted in the schema) that say nothing about which algorithms can do the work: the
// bias of a convolution is added afterwards, and the gradients that are wanted are made one by one.
std::vector<std::size_t> beside_the_problem(std::string_view op);

// Whether a second call has no effect but its results, and they are the same: it writes none of its
// arguments and draws no random numbers.
bool can_be_tried(const Node& node, const c10::FunctionSchema& schema);

// A call that makes the first result of another call again, from its arguments and from what the
// first run has left behind.
struct ShorterRun {
  struct Taken {
    bool from_results = false;  // else from the arguments
    std::size_t index = 0;
  };
  std::string_view op;
  std::vector<Taken> arguments;
};
// Of batch normalisation in training: with the statistics of the first run (results 1 and 2),
// nothing has to be added up again. Whether that gives the same bits depends on the
// library that the kernels are from.
std::optional<ShorterRun> shorter_run(const Node& node);

// Whether the kernel has read all that an element of its first result depends on before it writes
// that element, as far as it is known from outside (a trial must decide: overwriting.h).
enum class OverwritingNature : std::uint8_t {
  kUnsafe,
  kElementwise,   // an element depends on the same elements of the arguments
  kReducesFirst,  // and on sums over a row or channel, which are complete before it is written
};
OverwritingNature overwriting_nature(const c10::OperatorHandle& handle);

// A part of the model that runs as the user's Python; what it asks for depends on values.
bool is_island(const Node& node);
bool is_island_backward(const Node& node);
// Whether its first result is what it holds for its backward pass.
bool holds_for_backward(const Node& island);

// Whether plain PyTorch has gradients switched on while the node runs: in the forward pass.
bool runs_with_gradients(const Program& program, const Node& node);

}  // namespace regen::execute
