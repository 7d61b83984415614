#include "regen/execute/placement/storage_memory.h"

#include <c10/util/Exception.h>

#include <string>
#include <utility>

namespace regen::execute {
namespace {

constexpr const char* kAway =
    "regen: the memory of this tensor is away from its device, expected its state to come back "
    "first";

// A template, since what is not there is no error only where it depends on a parameter.
template <typename Impl>
concept Forgetful = requires(Impl& impl) {
  impl.clear_data_ptr_access_error_msg_();
};

template <typename Impl>
void refuse_access(Impl& impl) {
  if constexpr (Forgetful<Impl>) {
    impl.release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(kAway));
  }
}

template <typename Impl>
void allow_access(Impl& impl) {
  if constexpr (Forgetful<Impl>) {
    impl.clear_data_ptr_access_error_msg_();
  }
}

}  // namespace

bool refuses_access() {
  return Forgetful<c10::StorageImpl>;
}

bool has_memory(const c10::Storage& storage) {
  if (storage.nbytes() == 0) return true;
  try {
    return storage.data() != nullptr;
  } catch (const c10::Error&) {
    return false;
  }
}

void take_memory_away(const c10::Storage& storage) {
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  impl.set_data_ptr_noswap(c10::DataPtr(nullptr, impl.device()));
  if (impl.nbytes() > 0) refuse_access(impl);
}

void give_memory(const c10::Storage& storage, c10::DataPtr memory) {
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  allow_access(impl);
  impl.set_data_ptr_noswap(std::move(memory));
}

}  // namespace regen::execute
