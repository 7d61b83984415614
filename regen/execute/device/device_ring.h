// One allocation on a GPU that other processes can use: the slots of a shared input on the device.
// The process that made it copies batches in; the others open it once, by its handle.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "regen/base/result.h"
#include "regen/base/units.h"

namespace regen::execute {

class DeviceRing {
 public:
  virtual ~DeviceRing() = default;

  // Made in this process, on the CUDA device of this index.
  static Result<std::shared_ptr<DeviceRing>> create(int index, Bytes bytes);
  // Made by another process that still lives. The GPU is found by its place on the bus: the two may
  // number their devices differently.
  static Result<std::shared_ptr<DeviceRing>> open(const std::string& handle);

  // For open(): text of at most 200 bytes.
  virtual std::string handle() const = 0;
  virtual char* data() const = 0;
  virtual c10::Device device() const = 0;

  // Returns when the bytes are on the device: a reader that is notified after that needs no event.
  virtual Status copy_in(Bytes offset, const void* from, Bytes bytes) = 0;
  // Calls call(context), in a thread that must not use the device, when all that this thread's
  // present stream was given so far is done.
  virtual void after_present_work(void (*call)(void*), void* context) = 0;
};

}  // namespace regen::execute
