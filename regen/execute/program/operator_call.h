// A node as a call of PyTorch's dispatcher: the operator's handle and its arguments on a stack.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <span>
#include <vector>

#include "regen/execute/program/program.h"

namespace regen::execute {

// An operator that is not there is refused with its name and the node's place.
Result<c10::OperatorHandle> find_operator(const Program& program, NodeId node);

// Where the arguments of a call come from.
struct ArgumentSource {
  std::function<at::Tensor(ValueId)> tensor;
  std::span<const double> scalars;
  c10::Device device = c10::Device(c10::kCPU);
};

// All arguments in the order of the schema, defaults filled in.
Result<torch::jit::Stack> make_arguments(const Program& program, NodeId node,
                                         const c10::FunctionSchema& schema,
                                         const ArgumentSource& source);

// One argument alone; `json` is not null.
Result<c10::IValue> make_argument(const Json& json, const c10::Argument& wanted,
                                  const ArgumentSource& source);

// The tensors a call left on the stack, lists flattened; undefined ones stay as such.
std::vector<at::Tensor> take_results(torch::jit::Stack& stack);

// Positions (in the schema) of arguments that the operator writes, by its schema.
std::vector<std::size_t> written_arguments(const c10::FunctionSchema& schema);

// The JSON given for the argument at this position of the schema, or null if the default is used.
const Json* argument_json(const Node& node, const c10::FunctionSchema& schema,
                          std::size_t position);

// The storages that a node writes although it does not make them.
std::vector<StorageId> written_storages(const Program& program, const Node& node,
                                        const c10::FunctionSchema& schema);

}  // namespace regen::execute
