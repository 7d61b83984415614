#include "regen/execute/device/cuda/pages_cuda.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <optional>
#include <vector>

namespace regen::execute {
namespace {

// The driver's functions by name, found through the runtime: nothing is linked with libcuda, which
// is missing where there is no GPU.
class Driver {
 public:
  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuGetErrorString) error_string = nullptr;
  std::string missing_function;  // empty: all are there

  std::string text(CUresult status) const {
    const char* text = nullptr;
    if (error_string == nullptr || error_string(status, &text) != CUDA_SUCCESS) text = "?";
    return text;
  }

 private:
  Driver() {
    find("cuMemAddressReserve", reserve);
    find("cuMemAddressFree", free);
    find("cuMemCreate", create);
    find("cuMemRelease", release);
    find("cuMemMap", map);
    find("cuMemUnmap", unmap);
    find("cuMemSetAccess", set_access);
    find("cuMemGetAllocationGranularity", granularity);
    find("cuGetErrorString", error_string);
  }

  template <typename Function>
  void find(const char* name, Function& function) {
    constexpr unsigned kVersion = 12000;  // of the functions' meaning; drivers keep old ones
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess || address == nullptr) {
      static_cast<void>(cudaGetLastError());
      if (missing_function.empty()) missing_function = name;
      return;
    }
    function = reinterpret_cast<Function>(address);
  }
};

CUmemAllocationProp on_card(c10::DeviceIndex index) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = index;
  return properties;
}

class MappedPages final : public Pages {
 public:
  MappedPages(c10::DeviceIndex index, CUdeviceptr address, std::size_t bytes)
      : index_(index), address_(address), bytes_(bytes) {}

  // At the end of the process CUDA may be gone: what fails then is no matter.
  ~MappedPages() override {
    int before = -1;
    static_cast<void>(cudaGetDevice(&before));
    static_cast<void>(cudaSetDevice(index_));
    if (handle_) {
      static_cast<void>(cudaDeviceSynchronize());  // as cudaFree does
      static_cast<void>(let_go());
    }
    static_cast<void>(driver_.free(address_, bytes_));
    if (before >= 0) static_cast<void>(cudaSetDevice(before));
  }

  Status take() override {
    const c10::cuda::CUDAGuard guard(index_);
    const CUmemAllocationProp properties = on_card(index_);
    CUmemGenericAllocationHandle handle{};
    CUresult status = driver_.create(&handle, bytes_, &properties, 0);
    if (status == CUDA_ERROR_OUT_OF_MEMORY) {
      // What torch keeps for later is in the way.
      c10::cuda::CUDACachingAllocator::emptyCache();
      status = driver_.create(&handle, bytes_, &properties, 0);
    }
    if (status != CUDA_SUCCESS) return refused(status);
    status = map(handle);
    if (status == CUDA_SUCCESS) {
      handle_ = handle;
      return {};
    }
    static_cast<void>(driver_.release(handle));
    return refused(status);
  }

  Status release() override {
    const c10::cuda::CUDAGuard guard(index_);
    const CUresult status = let_go();
    if (status == CUDA_SUCCESS) return {};
    return bad_input("pages of an arena of " + format_bytes(static_cast<Bytes>(bytes_)) +
                     ": CUDA does not take them back (" + driver_.text(status) + ")");
  }

 private:
  CUresult map(CUmemGenericAllocationHandle handle) {
    CUresult status = driver_.map(address_, bytes_, 0, handle, 0);
    if (status != CUDA_SUCCESS) return status;
    CUmemAccessDesc access{};
    access.location = on_card(index_).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    status = driver_.set_access(address_, bytes_, &access, 1);
    if (status != CUDA_SUCCESS) static_cast<void>(driver_.unmap(address_, bytes_));
    return status;
  }

  CUresult let_go() {
    CUresult status = driver_.unmap(address_, bytes_);
    if (status != CUDA_SUCCESS) return status;
    status = driver_.release(*handle_);
    handle_.reset();
    return status;
  }

  Error refused(CUresult status) const {
    std::string text = "pages for an arena of " + format_bytes(static_cast<Bytes>(bytes_)) +
                       ": CUDA refuses them (" + driver_.text(status) + ")";
    std::size_t free = 0;
    std::size_t total = 0;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess) {
      text += "; " + format_bytes(static_cast<Bytes>(free)) + " of " +
              format_bytes(static_cast<Bytes>(total)) + " are free";
    }
    return limit_reached(text + ", expected a smaller budget or more free memory");
  }

  const Driver& driver_ = Driver::get();
  const c10::DeviceIndex index_;
  const CUdeviceptr address_;
  const std::size_t bytes_;
  std::optional<CUmemGenericAllocationHandle> handle_;  // while taken
};

class FixedPages final : public Pages {
 public:
  FixedPages(void* data, std::string why) : data_(data), why_(std::move(why)) {}
  ~FixedPages() override { static_cast<void>(cudaFree(data_)); }
  Status take() override { return {}; }
  Status release() override { return missing("the arena's memory cannot be released: " + why_); }

 private:
  void* data_;
  std::string why_;
};

}  // namespace

Result<MemoryBlock> allocate_paged_cuda(c10::DeviceIndex index, Bytes bytes) {
  const c10::cuda::CUDAGuard guard(index);
  static_cast<void>(cudaFree(nullptr));  // makes the card's context, if there is none yet
  const Driver& driver = Driver::get();
  if (!driver.missing_function.empty())
    return missing("this CUDA driver has no " + driver.missing_function);
  const CUmemAllocationProp properties = on_card(index);
  std::size_t page = 0;
  CUresult status = driver.granularity(&page, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (status != CUDA_SUCCESS || page == 0)
    return missing("this card has no virtual memory management (" + driver.text(status) + ")");
  const std::size_t rounded = (static_cast<std::size_t>(bytes) + page - 1) / page * page;
  CUdeviceptr address = 0;
  status = driver.reserve(&address, rounded, 0, 0, 0);
  if (status != CUDA_SUCCESS)
    return limit_reached("an address for an arena of " + format_bytes(bytes) +
                         ": CUDA refuses it (" + driver.text(status) + ")");
  auto pages = std::make_unique<MappedPages>(index, address, rounded);
  REGEN_TRY(pages->take());
  return MemoryBlock(reinterpret_cast<void*>(address), static_cast<Bytes>(rounded),
                     std::move(pages));
}

MemoryBlock fixed_cuda_block(void* data, Bytes bytes, std::string why_not_releasable) {
  return MemoryBlock(data, bytes,
                     std::make_unique<FixedPages>(data, std::move(why_not_releasable)));
}

}  // namespace regen::execute
