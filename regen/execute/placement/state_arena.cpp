#include "regen/execute/placement/state_arena.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <mutex>

#include "regen/execute/device/cpu/work_queue.h"
#include "regen/execute/device/quietly.h"
#include "regen/execute/placement/storage_memory.h"

namespace regen::execute {
namespace {

// On every device, so that images are the same everywhere.
constexpr Bytes kAlignment = 512;

Bytes aligned(Bytes bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));  // a backtrace follows
}

// Calls `work`, which may throw as torch does.
template <typename Work>
Status attempt(const char* what, const Work& work) {
  try {
    work();
    return {};
  } catch (const std::exception& error) {
    return bad_input(std::string(what) + ": " + first_line(error));
  }
}

void let_go_of_arena(void* context) {
  delete static_cast<std::shared_ptr<MemoryBlock>*>(context);
}

c10::DataPtr pointer_into(const std::shared_ptr<MemoryBlock>& arena, Bytes offset,
                          c10::Device device) {
  return {arena->at(offset), new std::shared_ptr<MemoryBlock>(arena), &let_go_of_arena, device};
}

struct Counters {
  std::mutex mutex;
  std::map<c10::DeviceIndex, Bytes> bytes;
};

Counters& counters() {
  static auto* all = new Counters;  // arenas may go at the very end
  return *all;
}

Status check_tensor(const at::Tensor& tensor, std::size_t index, c10::DeviceType expected) {
  const std::string name = "tensor " + std::to_string(index) + " of the state";
  if (!tensor.defined() || !tensor.has_storage() || tensor.layout() != at::kStrided)
    return bad_input(name + " has no memory of its own, expected a dense tensor");
  if (tensor.device().type() != expected) {
    return bad_input(name + " is on " + tensor.device().str() + ", expected " +
                     c10::DeviceTypeName(expected, true));
  }
  if (!has_memory(tensor.storage()))
    return bad_input(name + " has no memory now, expected state that is not away already");
  return {};
}

}  // namespace

Result<StateArena::Layout> StateArena::make_layout(const std::vector<at::Tensor>& tensors,
                                                   const std::vector<at::Tensor>& on_host,
                                                   const ExecutionDevice& device) {
  Layout layout;
  std::map<c10::StorageImpl*, bool> known;
  const auto add = [&](const at::Tensor& tensor, std::vector<Slot>& slots, Bytes& end) {
    const c10::Storage& storage = tensor.storage();
    if (!known.emplace(storage.unsafeGetStorageImpl(), true).second) return;
    const auto bytes = static_cast<Bytes>(storage.nbytes());
    slots.push_back({storage, {end, bytes}});
    end += aligned(bytes);
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    REGEN_TRY(check_tensor(tensors[i], i, device.torch_device().type()));
    add(tensors[i], layout.slots, layout.arena_bytes);
  }
  layout.image_bytes = layout.arena_bytes;
  for (std::size_t i = 0; i < on_host.size(); ++i) {
    REGEN_TRY(check_tensor(on_host[i], tensors.size() + i, c10::kCPU));
    add(on_host[i], layout.host_slots, layout.image_bytes);
  }
  return layout;
}

Result<std::unique_ptr<StateArena>> StateArena::pack(std::vector<at::Tensor> tensors,
                                                     std::vector<at::Tensor> on_host,
                                                     std::shared_ptr<ExecutionDevice> device) {
  REGEN_ASSIGN(Layout layout, make_layout(tensors, on_host, *device));
  REGEN_ASSIGN(MemoryBlock block,
               device->allocate_arena(layout.arena_bytes, ArenaKind::kReleasable));
  std::unique_ptr<StateArena> state(new StateArena);
  state->device_ = std::move(device);
  state->arena_ = std::make_shared<MemoryBlock>(std::move(block));
  REGEN_TRY(attempt("the state cannot be packed",
                    [&] { state->fill_from_storages(*state->arena_, layout); }));
  state->layout_ = std::move(layout);
  state->tensors_ = std::move(tensors);
  state->on_host_ = std::move(on_host);
  for (const Slot& slot : state->layout_.slots) state->point_to_arena(slot);
  state->count(state->bytes());
  return state;
}

StateArena::~StateArena() {
  if (arena_ && !away()) count(-bytes());
}

void StateArena::fill_from_storages(const MemoryBlock& arena, const Layout& layout) const {
  for (const Slot& slot : layout.slots) {
    device_->copy(Queue::kCompute, arena.at(slot.place.offset), slot.storage.data(),
                  slot.place.bytes);
  }
  device_->synchronize();
}

void StateArena::point_to_arena(const Slot& slot) const {
  give_memory(slot.storage, pointer_into(arena_, slot.place.offset, device_->torch_device()));
}

Status StateArena::check_in_place() const {
  for (const Slot& slot : layout_.slots) {
    if (slot.storage.data() == address(slot) &&
        static_cast<Bytes>(slot.storage.nbytes()) == slot.place.bytes) {
      continue;
    }
    return bad_input("storage " + std::to_string(&slot - layout_.slots.data()) +
                     " of the state has other memory now, expected that it stays in the arena");
  }
  return {};
}

Status StateArena::take_host_memory() {
  if (host_.bytes() >= layout_.image_bytes) return {};
  host_ = MemoryBlock();
  REGEN_ASSIGN(host_, device_->allocate_host(layout_.image_bytes));
  return {};
}

// The arena to the host memory; everything that was enqueued for it is done then.
Status StateArena::copy_out() {
  REGEN_TRY(check_in_place());
  REGEN_TRY(take_host_memory());
  return attempt("the state cannot be copied to the host", [&] {
    device_->synchronize();
    const double begin = now_seconds();
    pack_to_host(*device_, *arena_, whole_arena(), host_.data());
    device_->synchronize();
    seconds_.copy = now_seconds() - begin;
  });
}

Status StateArena::copy_in(ExecutionDevice& device, const MemoryBlock& arena) const {
  Status copied = attempt("the state cannot be copied to the device", [&] {
    unpack_to_device(device, arena, whole_arena(), host_.data());
    device.synchronize();
  });
  // The caller takes the memory away: no copy may be under way then.
  if (!copied.ok()) quietly(Lost::kDrop, [&] { device.synchronize(); });
  return copied;
}

Result<Bytes> StateArena::leave() {
  if (away()) return Bytes{0};
  REGEN_TRY(copy_out());
  const double begin = now_seconds();
  REGEN_TRY(arena_->release_pages());
  seconds_.pages = now_seconds() - begin;
  for (const Slot& slot : layout_.slots) take_memory_away(slot.storage);
  count(-bytes());
  return bytes();
}

Status StateArena::come_back() {
  if (!away()) return {};
  const double begin = now_seconds();
  REGEN_TRY(arena_->take_pages());
  seconds_.pages = now_seconds() - begin;
  if (Status copied = copy_in(*device_, *arena_); !copied.ok()) {
    static_cast<void>(arena_->release_pages());  // the host has everything still
    return copied;
  }
  seconds_.copy = now_seconds() - begin - seconds_.pages;
  for (const Slot& slot : layout_.slots) point_to_arena(slot);
  count(bytes());
  return {};
}

Status StateArena::move_to(std::shared_ptr<ExecutionDevice> device) {
  if (!away()) REGEN_TRY(copy_out());
  REGEN_ASSIGN(MemoryBlock block,
               device->allocate_arena(layout_.arena_bytes, ArenaKind::kReleasable));
  REGEN_TRY(copy_in(*device, block));
  if (!away()) count(-bytes());
  arena_ = std::make_shared<MemoryBlock>(std::move(block));
  device_ = std::move(device);
  move_tensors();
  count(bytes());
  return {};
}

// New storages, since a tensor knows its device as well as its storage does.
void StateArena::move_tensors() {
  std::map<c10::StorageImpl*, c10::Storage> moved;
  for (Slot& slot : layout_.slots) {
    c10::Storage storage(c10::Storage::use_byte_size_t(),
                         static_cast<std::size_t>(slot.place.bytes),
                         pointer_into(arena_, slot.place.offset, device_->torch_device()),
                         c10::GetAllocator(device_->torch_device().type()), /*resizable=*/true);
    moved[slot.storage.unsafeGetStorageImpl()] = storage;
    slot.storage = std::move(storage);
  }
  for (at::Tensor& tensor : tensors_) {
    at::Tensor there =
        at::empty({0}, tensor.options().requires_grad(false).device(device_->torch_device()));
    there.set_(moved.at(tensor.storage().unsafeGetStorageImpl()), tensor.storage_offset(),
               tensor.sizes(), tensor.strides());
    tensor.set_data(there);
  }
}

bool StateArena::takes_slots_of(const Layout& layout) const {
  if (layout.slots.size() != layout_.slots.size()) return false;
  for (std::size_t i = 0; i < layout.slots.size(); ++i) {
    const Slot& slot = layout.slots[i];
    if (slot.place != layout_.slots[i].place) return false;
    // Of two that have changed places, one would be overwritten before it is copied.
    const auto* data = static_cast<const std::byte*>(slot.storage.data());
    const auto* begin = static_cast<const std::byte*>(arena_->data());
    const bool inside = data >= begin && data < begin + arena_->bytes();
    if (inside && data != address(slot)) return false;
  }
  return true;
}

Result<bool> StateArena::adopt(std::vector<at::Tensor> tensors, std::vector<at::Tensor> on_host) {
  if (away()) return bad_input("the state is away, expected come_back() before it is changed");
  REGEN_ASSIGN(Layout layout, make_layout(tensors, on_host, *device_));
  if (!takes_slots_of(layout)) return false;
  tensors_ = std::move(tensors);
  on_host_ = std::move(on_host);
  REGEN_TRY(attempt("the state cannot be packed again", [&] {
    for (std::size_t i = 0; i < layout.slots.size(); ++i) {
      if (layout.slots[i].storage.data() == address(layout.slots[i])) continue;
      vacate(layout_.slots[i]);
      const Slot& slot = layout.slots[i];
      device_->copy(Queue::kCompute, address(slot), slot.storage.data(), slot.place.bytes);
      device_->synchronize();
      point_to_arena(slot);
    }
  }));
  layout_ = std::move(layout);
  return true;
}

// A storage that is no part of the state any more and is still in use gets memory from torch.
void StateArena::vacate(const Slot& slot) const {
  if (slot.storage.use_count() == 1 || slot.storage.data() != address(slot)) return;
  const auto options = at::TensorOptions().dtype(at::kByte).device(device_->torch_device());
  const at::Tensor own = at::empty({slot.place.bytes}, options);
  device_->copy(Queue::kCompute, own.mutable_data_ptr(), address(slot), slot.place.bytes);
  give_memory(slot.storage, std::move(own.storage().unsafeGetStorageImpl()->mutable_data_ptr()));
}

Result<std::span<const std::byte>> StateArena::image() {
  if (!away()) REGEN_TRY(copy_out());
  for (const Slot& slot : layout_.host_slots) {
    std::memcpy(host_.at(slot.place.offset), slot.storage.data(), slot.storage.nbytes());
  }
  return std::span(static_cast<const std::byte*>(host_.data()),
                   static_cast<std::size_t>(layout_.image_bytes));
}

Result<std::span<std::byte>> StateArena::image_room() {
  REGEN_TRY(take_host_memory());
  return std::span(static_cast<std::byte*>(host_.data()),
                   static_cast<std::size_t>(layout_.image_bytes));
}

Status StateArena::take_image() {
  if (!away()) {
    REGEN_TRY(check_in_place());
    REGEN_TRY(attempt("the state cannot be filled", [&] { device_->synchronize(); }));
    REGEN_TRY(copy_in(*device_, *arena_));
  }
  for (const Slot& slot : layout_.host_slots) {
    std::memcpy(slot.storage.unsafeGetStorageImpl()->mutable_data(), host_.at(slot.place.offset),
                slot.storage.nbytes());
  }
  return {};
}

void StateArena::count(Bytes difference) const {
  if (!device_->torch_device().is_cuda()) return;
  Counters& all = counters();
  const std::lock_guard lock(all.mutex);
  all.bytes[device_->torch_device().index()] += difference;
}

Bytes StateArena::bytes_on(c10::Device device) {
  Counters& all = counters();
  const std::lock_guard lock(all.mutex);
  return all.bytes[device.has_index() ? device.index() : c10::DeviceIndex{0}];
}

}  // namespace regen::execute
