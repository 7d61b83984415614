#include "regen/execute/program/program_data.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace regen::execute {
namespace {

const DataSpec* find_data(const Program& program, StorageId storage) {
  for (const DataSpec& data : program.data) {
    if (data.storage == storage) return &data;
  }
  return nullptr;
}

Status check_size(const std::string& folder, const Program& program, StorageId storage) {
  const DataSpec* data = find_data(program, storage);
  const StorageSpec& spec = program.storages[storage];
  if (data == nullptr || data->bytes == spec.bytes) return {};
  return bad_input(folder + ": the data of storage " + std::to_string(storage.index()) + " '" +
                   spec.name + "' has " + std::to_string(data->bytes) + " bytes, expected " +
                   std::to_string(spec.bytes));
}

// The gradient of a sum: ones, in the type that the program reads them in.
void fill_with_ones(const Program& program, StorageId storage, const at::Tensor& tensor) {
  for (const ValueSpec& value : program.values) {
    if (value.storage != storage) continue;
    const auto items = tensor.numel() / static_cast<std::int64_t>(c10::elementSize(value.dtype));
    make_view({storage, value.dtype, {items}, {1}, 0}, tensor.storage()).fill_(1);
    return;
  }
}

}  // namespace

Result<ProgramData> ProgramData::load(const std::string& folder, const Program& program,
                                      c10::Device device, bool complete) {
  ProgramData data(folder, program);
  data.tensors_.resize(program.storages.size());
  for (std::size_t s = 0; s < program.storages.size(); ++s) {
    const StorageId id(s);
    const StorageSpec& spec = program.storages[id];
    if (spec.role == Role::kComputed) continue;
    const bool absent = spec.role != Role::kTangent && find_data(program, id) == nullptr;
    if (absent && !complete) continue;
    const c10::Device where = spec.device.empty() ? device : c10::Device(spec.device);
    data.tensors_[id] = at::empty({spec.bytes}, at::TensorOptions().dtype(at::kByte).device(where));
    REGEN_TRY(data.fill(id, data.tensors_[id]));
  }
  return data;
}

Status ProgramData::reload() {
  for (std::size_t s = 0; s < tensors_.size(); ++s) {
    at::Tensor& tensor = tensors_[StorageId(s)];
    if (tensor.defined()) REGEN_TRY(fill(StorageId(s), tensor));
  }
  return {};
}

Status ProgramData::fill(StorageId storage, at::Tensor& tensor) const {
  if (program_.storages[storage].role == Role::kTangent) {
    fill_with_ones(program_, storage, tensor);
    return {};
  }
  REGEN_TRY(check_size(folder_, program_, storage));
  REGEN_ASSIGN(std::string content, load_data(folder_, program_, storage));
  tensor.copy_(
      at::from_blob(content.data(), {static_cast<std::int64_t>(content.size())}, at::kByte));
  return {};
}

Bytes ProgramData::bytes_on(c10::Device device) const {
  // Torch's allocator on CUDA rounds up.
  const Bytes unit = device.is_cpu() ? 1 : 512;
  Bytes sum = 0;
  for (const at::Tensor& tensor : tensors_) {
    if (!tensor.defined() || tensor.device() != device) continue;
    sum += (tensor.numel() + unit - 1) / unit * unit;
  }
  return sum;
}

Status bind(Executor& executor, const ProgramData& data) {
  for (std::size_t s = 0; s < data.size(); ++s) {
    const at::Tensor& tensor = data.tensor(StorageId(s));
    if (tensor.defined()) REGEN_TRY(executor.bind(StorageId(s), tensor));
  }
  return {};
}

}  // namespace regen::execute
