#include "regen/execute/device/device_ring.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstring>

namespace regen::execute {
namespace {

constexpr int kBusIdBytes = 32;
// The driver cuts smaller allocations out of blocks of this size, and would share the whole block.
constexpr Bytes kSharedUnit = Bytes{2} << 20;

Error cuda_error(const char* what, cudaError_t code) {
  (void)cudaGetLastError();  // it is reported here, not by the next call of another caller
  return missing(std::string("shared input on a GPU: ") + what + ": " + cudaGetErrorString(code));
}

#define REGEN_CUDA(call)                                                      \
  do {                                                                        \
    if (const cudaError_t regen_code_ = (call); regen_code_ != cudaSuccess) { \
      return cuda_error(#call, regen_code_);                                  \
    }                                                                         \
  } while (false)

// The handle as text: where the GPU is, and the driver's bytes.
struct Handle {
  char bus[kBusIdBytes];
  cudaIpcMemHandle_t memory;
};

// For destructors. At the end of the process the driver may be gone, and torch's guards throw.
class QuietGuard {
 public:
  explicit QuietGuard(int index) {
    (void)cudaGetDevice(&before_);
    (void)cudaSetDevice(index);
  }
  QuietGuard(const QuietGuard&) = delete;
  ~QuietGuard() {
    (void)cudaSetDevice(before_);
    (void)cudaGetLastError();
  }

 private:
  int before_ = 0;
};

class CudaRing : public DeviceRing {
 public:
  CudaRing(int index, char* data, bool ours) : index_(index), data_(data), ours_(ours) {}
  ~CudaRing() override {
    const QuietGuard guard(index_);
    (void)cudaDeviceSynchronize();  // kernels of this process may still read it
    (void)(ours_ ? cudaFree(data_) : cudaIpcCloseMemHandle(data_));
  }

  Status export_handle() {
    Handle handle{};
    REGEN_CUDA(cudaDeviceGetPCIBusId(handle.bus, kBusIdBytes, index_));
    REGEN_CUDA(cudaIpcGetMemHandle(&handle.memory, data_));
    handle_.assign(reinterpret_cast<const char*>(&handle), sizeof handle);
    return {};
  }

  std::string handle() const override { return handle_; }
  char* data() const override { return data_; }
  c10::Device device() const override {
    return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index_));
  }

  Status copy_in(Bytes offset, const void* from, Bytes bytes) override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index_));
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    REGEN_CUDA(cudaMemcpyAsync(data_ + offset, from, static_cast<std::size_t>(bytes),
                               cudaMemcpyHostToDevice, stream));
    REGEN_CUDA(cudaStreamSynchronize(stream));
    return {};
  }

  void after_present_work(void (*call)(void*), void* context) override {
    const QuietGuard guard(index_);
    const auto index = static_cast<c10::DeviceIndex>(index_);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(index).stream();
    if (cudaLaunchHostFunc(stream, call, context) == cudaSuccess) return;
    // At the end of the process the driver may be gone; then there is no work either.
    call(context);
  }

 private:
  int index_;
  char* data_;
  bool ours_;
  std::string handle_;
};

}  // namespace

Result<std::shared_ptr<DeviceRing>> DeviceRing::create(int index, Bytes bytes) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  // Memory of its own: torch's allocator gives parts of blocks, which would all be shared, or of
  // expandable segments, which cannot be.
  void* data = nullptr;
  const Bytes whole = (bytes + kSharedUnit - 1) / kSharedUnit * kSharedUnit;
  REGEN_CUDA(cudaMalloc(&data, static_cast<std::size_t>(whole)));
  const auto ring = std::make_shared<CudaRing>(index, static_cast<char*>(data), true);
  REGEN_TRY(ring->export_handle());
  return std::shared_ptr<DeviceRing>(ring);
}

Result<std::shared_ptr<DeviceRing>> DeviceRing::open(const std::string& text) {
  Handle handle{};
  if (text.size() != sizeof handle) {
    return bad_input("shared input on a GPU: its handle has " + std::to_string(text.size()) +
                     " bytes, expected " + std::to_string(sizeof handle));
  }
  std::memcpy(&handle, text.data(), sizeof handle);
  handle.bus[kBusIdBytes - 1] = '\0';
  int index = 0;
  REGEN_CUDA(cudaDeviceGetByPCIBusId(&index, handle.bus));
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  void* data = nullptr;
  REGEN_CUDA(cudaIpcOpenMemHandle(&data, handle.memory, cudaIpcMemLazyEnablePeerAccess));
  return std::shared_ptr<DeviceRing>(
      std::make_shared<CudaRing>(index, static_cast<char*>(data), false));
}

}  // namespace regen::execute
