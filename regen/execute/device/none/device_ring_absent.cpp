// A build whose torch has no CUDA.
#ifndef REGEN_WITH_CUDA

#include "regen/execute/device/device_ring.h"

namespace regen::execute {
namespace {

Error no_cuda() {
  return missing(
      "shared input on a GPU: the torch that regen was built with has no CUDA, expected "
      "device='cpu'");
}

}  // namespace

Result<std::shared_ptr<DeviceRing>> DeviceRing::create(int /*index*/, Bytes /*bytes*/) {
  return no_cuda();
}

Result<std::shared_ptr<DeviceRing>> DeviceRing::open(const std::string& /*handle*/) {
  return no_cuda();
}

}  // namespace regen::execute

#endif
