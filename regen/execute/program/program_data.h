// What a step starts from, as it travels with the program: parameters, buffers, states, inputs and
// constants, read from data.bin into memory of the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "regen/execute/device/device.h"
#include "regen/execute/program/program.h"
#include "regen/execute/run/executor.h"

namespace regen::execute {

class ProgramData {
 public:
  // Gradients of outputs do not travel: they are ones. Everything else must have an entry in
  // `data`; with `complete` false, what has none stays undefined.
  static Result<ProgramData> load(const std::string& folder, const Program& program,
                                  c10::Device device, bool complete = true);

  // The same contents again in the same memory, after steps that changed it.
  Status reload();

  // Whole storages as bytes; undefined for storages that nodes make.
  const at::Tensor& tensor(StorageId storage) const { return tensors_[storage]; }
  std::size_t size() const { return tensors_.size(); }
  // As allocated there.
  Bytes bytes_on(c10::Device device) const;

 private:
  ProgramData(std::string folder, Program program)
      : folder_(std::move(folder)), program_(std::move(program)) {}
  Status fill(StorageId storage, at::Tensor& tensor) const;

  std::string folder_;
  Program program_;
  IdVector<StorageId, at::Tensor> tensors_;
};

// All of it, for the next steps; `data` must outlive them.
Status bind(Executor& executor, const ProgramData& data);

}  // namespace regen::execute
