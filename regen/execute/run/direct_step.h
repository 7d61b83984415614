// A program as plain PyTorch would run it: one operator after the other, memory from torch, every
// value let go after its last use. What a plan's results are compared with, and what an executor's
// time is measured against.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <vector>

#include "regen/execute/device/device.h"
#include "regen/execute/program/program.h"
#include "regen/execute/program/program_data.h"

namespace regen::execute {

class DirectStep {
 public:
  // `data` is complete and outlives the step, which changes it as training does.
  static Result<std::unique_ptr<DirectStep>> make(const Program& program, const ProgramData& data,
                                                  std::shared_ptr<ExecutionDevice> device);

  Status run();
  // Of the last run; shares memory with what it left.
  at::Tensor result(std::size_t index) const;
  // Lets go of the results.
  void forget();

 private:
  // A place for a tensor in a call's arguments; `item` counts in a list, -1 outside of one.
  struct Place {
    std::size_t argument = 0;
    std::int64_t item = -1;
    ValueId value;
  };
  struct Call {
    c10::OperatorHandle handle;
    NodeId node;
    torch::jit::Stack arguments;  // without tensors
    std::vector<Place> places;
    std::vector<ValueId> last_uses;
    bool forward = true;
  };

  DirectStep() = default;
  Status add_call(NodeId id);
  void find_places(const Node& node, Call& call) const;
  void find_last_uses();
  void run_call(const Call& call);

  Program program_;
  std::shared_ptr<ExecutionDevice> device_;
  std::vector<Call> calls_;
  IdVector<ValueId, at::Tensor> bound_;   // of storages that no node makes
  IdVector<ValueId, at::Tensor> values_;  // of the step under way
  torch::jit::Stack stack_;
};

}  // namespace regen::execute
