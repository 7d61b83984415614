// One call on the device, made with contents of its own: how long it takes, what it allocates, what
// its results look like, and which other ways there are to make it.
#pragma once

#include <vector>

#include "regen/execute/program/call_arguments.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/execute/program/overwriting.h"
#include "regen/execute/record/record.h"

namespace regen::execute {

// Formulas that round differently differ in a third of all elements; fewer may agree by chance.
inline constexpr std::int64_t kConclusiveItems = 1 << 16;

// Whether the first result has enough elements to tell formulas apart that round differently.
bool is_conclusive(const CallRecord& record);
// Whether the call may be tried with its first result in place of an argument.
bool worth_a_trial(const c10::OperatorHandle& handle, const CallRecord& record);

class CallMeasurement {
 public:
  // All are kept by reference.
  CallMeasurement(const Program& program, ExecutionDevice& device, const RecordOptions& options);

  // The node's arguments have been recorded. `caps`: of an earlier call with the same problem, to
  // be followed if possible, or null. Throws what the operator throws.
  Result<CallRecord> of(NodeId id, const CallArguments& arguments,
                        const std::vector<Bytes>* caps) const;

 private:
  Result<CallRecord> measure(NodeId id, const RepeatableCall& call,
                             const std::vector<Bytes>* caps) const;
  Result<std::vector<std::size_t>> overwritable(NodeId id, const CallArguments& arguments,
                                                const TrialCall& trial,
                                                const CallRecord& record) const;
  std::optional<double> shorter_seconds(NodeId id, const torch::jit::Stack& arguments,
                                        const RepeatableCall& call) const;
  std::vector<at::Tensor> make_memory(const CallArguments& arguments, bool real_indices) const;
  at::Tensor sample_of(StorageId storage) const;
  at::Tensor make_contents(StorageId storage, const CallArguments& arguments) const;
  at::Tensor made_indices(StorageId storage) const;
  at::Tensor result_of(NodeId id, std::size_t result) const;
  Result<torch::jit::Stack> make_stack(NodeId id, const CallArguments& arguments,
                                       const std::vector<at::Tensor>& memory) const;
  void describe_results(const std::vector<at::Tensor>& tensors,
                        const std::vector<RecordedAllocation>& observed,
                        const std::vector<at::Tensor>& memory, CallRecord& record) const;
  void find_source(const at::Tensor& tensor, const std::vector<RecordedAllocation>& observed,
                   const std::vector<at::Tensor>& memory, ResultLayout& layout) const;
  double time(const std::function<void()>& call) const;
  double time_burst(const std::function<void()>& call, int calls) const;

  const Program& program_;
  ExecutionDevice& device_;
  const RecordOptions& options_;
  std::vector<double> scalars_;
};

}  // namespace regen::execute
