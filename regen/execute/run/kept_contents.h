// What a step changes of the caller's before its first update (running statistics, tensors that a
// forward pass writes to), as it was before the step: a step that ends early leaves them as they
// were and may run again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <vector>

#include "regen/execute/program/program.h"

namespace regen::execute {

// A stretch of one of the caller's storages, in bytes: what the program's values take of it.
struct ChangedRange {
  StorageId storage;
  Bytes offset = 0;
  Bytes bytes = 0;
};

// What nodes outside the update write.
std::vector<ChangedRange> changed_before_update(const Program& program);
// What copies of that take on the program's device.
Bytes kept_contents_bytes(const Program& program);

class KeptContents {
 public:
  KeptContents() = default;
  // Takes the memory for the copies.
  KeptContents(const Program& program, c10::Device device);

  // From now on of these storages: a step has others for each of its sizes, none larger than planned.
  void use(const Program& program, const IdVector<StorageId, c10::Storage>& bound);
  // Of the tensors that are bound now.
  void save();
  // Once for each save(); without one it does nothing.
  void put_back();
  // What has changed stays.
  void forget() { saved_ = false; }

 private:
  // Tensors of one device, as bytes.
  struct Group {
    std::vector<at::Tensor> theirs;
    std::vector<at::Tensor> copies;
  };

  std::vector<StorageId> storages_;
  at::Tensor memory_;
  Group on_device_;
  Group on_host_;  // what stays on the host in a step of another device
  bool saved_ = false;
};

}  // namespace regen::execute
