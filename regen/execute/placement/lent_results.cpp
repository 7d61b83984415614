#include "regen/execute/placement/lent_results.h"

#include <ATen/ops/empty.h>

namespace regen::execute {
namespace {

using Arena = std::shared_ptr<MemoryBlock>;

void let_go(void* arena) {
  delete static_cast<Arena*>(arena);
}

at::Tensor bytes_of(const c10::Storage& storage) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
  return at::empty({0}, options)
      .set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())}, {1});
}

at::Tensor new_memory(const c10::Storage& storage) {
  return at::empty({static_cast<std::int64_t>(storage.nbytes())},
                   at::TensorOptions().dtype(at::kByte).device(storage.device()));
}

// What the storage had is free then.
void give_memory_of(const at::Tensor& tensor, const c10::Storage& storage) {
  const c10::Storage& from = tensor.storage();
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
      from.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, storage.device())));
}

}  // namespace

c10::Storage LentResults::lend(const Arena& arena, Bytes offset, Bytes bytes, c10::Device device) {
  const auto known = lent_.find(offset);
  if (known != lent_.end()) {
    if (auto storage = known->second.storage.lock()) return c10::Storage(std::move(storage));
  }
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(bytes),
                       c10::DataPtr(arena->at(offset), new Arena(arena), &let_go, device), nullptr,
                       false);
  lent_.insert_or_assign(offset, Lent{storage.getWeakStorageImpl(), bytes});
  return storage;
}

std::vector<c10::Storage> LentResults::held() const {
  std::vector<c10::Storage> storages;
  for (const auto& [offset, lent] : lent_) {
    if (auto storage = lent.storage.lock()) storages.emplace_back(std::move(storage));
  }
  return storages;
}

Bytes LentResults::held_bytes() const {
  Bytes sum = 0;
  for (const auto& [begin, end] : held_ranges()) sum += end - begin;
  return sum;
}

std::vector<std::pair<Bytes, Bytes>> LentResults::held_ranges() const {
  std::vector<std::pair<Bytes, Bytes>> ranges;
  for (const auto& [offset, lent] : lent_) {
    if (lent.storage.use_count() > 0) ranges.emplace_back(offset, offset + lent.bytes);
  }
  return ranges;
}

void move_to_own_memory(const std::vector<c10::Storage>& storages) {
  for (const c10::Storage& storage : storages) {
    at::Tensor memory = new_memory(storage);
    memory.copy_(bytes_of(storage));
    give_memory_of(memory, storage);
  }
}

std::vector<MovedContents> move_to_host(const std::vector<c10::Storage>& storages) {
  std::vector<MovedContents> moved;
  for (const c10::Storage& storage : storages) {
    at::Tensor contents = at::empty({static_cast<std::int64_t>(storage.nbytes())}, at::kByte);
    contents.copy_(bytes_of(storage));
    moved.push_back({storage, std::move(contents)});
  }
  for (const MovedContents& each : moved) {
    each.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        c10::DataPtr(nullptr, each.storage.device()));
  }
  return moved;
}

void move_back(const std::vector<MovedContents>& moved) {
  for (const MovedContents& each : moved) {
    at::Tensor memory = new_memory(each.storage);
    memory.copy_(each.contents);
    give_memory_of(memory, each.storage);
  }
}

}  // namespace regen::execute
