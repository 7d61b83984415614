// Which arguments of a call may give their memory to its first result.
//
// A kernel that has read all that an element of its result depends on before it writes that element
// gives the same bits when the result lies where an argument of the same layout was: kernels that
// treat each element by itself, and those that first add up a row or a channel. What an operator is
// says whether it may be tried; a trial on the device, with the sizes in question, decides: once
// into fresh memory, once into the argument's, and all results must have the same bits.
#pragma once

#include <functional>
#include <vector>

#include "regen/execute/device/device.h"
#include "regen/execute/program/call_arguments.h"
#include "regen/execute/record/record_cache.h"

namespace regen::execute {

// Whether two tensors have the same layout and their storages the same contents.
bool same_bytes(const at::Tensor& a, const at::Tensor& b);

// Whether the storage, counted as in `arguments`, is read once, as a whole, and laid out as the
// call's first result is.
bool laid_out_as_first_result(const Program& program, const CallArguments& arguments,
                              std::size_t storage, const CallRecord& call);

// A call that can be made any number of times, on `memory`: the storages of its arguments.
struct TrialCall {
  std::function<std::vector<at::Tensor>()> run;
  std::function<double(const std::function<void()>&)> time;  // of a call of it, in seconds
  const std::vector<at::Tensor>& memory;
};

// Of the candidates, storages counted as in `memory`, those that pass and take no longer. All
// contents change. Throws what the operator throws.
Result<std::vector<std::size_t>> find_overwritable(const TrialCall& trial, const CallRecord& call,
                                                   const std::vector<std::size_t>& candidates,
                                                   c10::Device device);

}  // namespace regen::execute
