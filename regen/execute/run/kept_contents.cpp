#include "regen/execute/run/kept_contents.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "regen/execute/program/operator_call.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/execute/program/program_values.h"
#include "regen/execute/run/instructions.h"

namespace regen::execute {
namespace {

// So that wide loads read whole vectors of each copy.
constexpr Bytes kAlignment = 64;

Bytes round_up_copy(Bytes bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_brought(Role role) {
  return role != Role::kComputed && role != Role::kTangent;
}

// Those that the schema names, and those that it does not.
std::vector<StorageId> written_by(const Program& program, NodeId id) {
  const Node& node = program.nodes[id];
  const auto handle = find_operator(program, id);
  if (!handle.ok()) return {};
  std::vector<StorageId> storages = written_storages(program, node, handle->schema());
  for (const std::size_t position : silently_written(node)) {
    const Json* json = argument_json(node, handle->schema(), position);
    if (json == nullptr) continue;
    Node one;
    one.args.push_back(*json);
    for (const ValueId value : values_read(one)) storages.push_back(program.values[value].storage);
  }
  return storages;
}

std::vector<StorageId> storages_changed_before_update(const Program& program) {
  IdVector<StorageId, bool> changed(program.storages.size(), false);
  for (std::size_t n = 0; n < program.nodes.size(); ++n) {
    if (program.nodes[NodeId(n)].phase == Phase::kUpdate) continue;
    for (const StorageId storage : written_by(program, NodeId(n))) changed[storage] = true;
  }
  std::vector<StorageId> found;
  for (std::size_t s = 0; s < changed.size(); ++s) {
    const StorageId id(s);
    if (changed[id] && is_brought(program.storages[id].role)) found.push_back(id);
  }
  return found;
}

// An input may be a part of something larger than the sample was: its memory ends where its values do.
std::vector<ChangedRange> ranges_of(const Program& program,
                                    const std::vector<StorageId>& storages) {
  IdVector<StorageId, Bytes> begin(program.storages.size(), kMaxBytes);
  IdVector<StorageId, Bytes> end(program.storages.size(), 0);
  for (const ValueSpec& value : program.values) {
    if (std::ranges::any_of(value.sizes, [](std::int64_t size) { return size == 0; })) continue;
    std::int64_t last = value.offset;
    for (std::size_t d = 0; d < value.sizes.size(); ++d)
      last += (value.sizes[d] - 1) * value.strides[d];
    const auto bytes = static_cast<Bytes>(c10::elementSize(value.dtype));
    begin[value.storage] = std::min(begin[value.storage], value.offset * bytes);
    end[value.storage] = std::max(end[value.storage], (last + 1) * bytes);
  }
  std::vector<ChangedRange> ranges;
  ranges.reserve(storages.size());
  for (const StorageId id : storages) {
    ranges.push_back({id, begin[id], std::max<Bytes>(0, end[id] - begin[id])});
  }
  return ranges;
}

at::Tensor bytes_at(const c10::Storage& storage, Bytes offset, Bytes bytes) {
  return make_view(ValueSpec{StorageId(), c10::ScalarType::Byte, {bytes}, {1}, offset}, storage);
}

at::Tensor new_bytes(Bytes bytes, c10::Device device) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
}

}  // namespace

std::vector<ChangedRange> changed_before_update(const Program& program) {
  return ranges_of(program, storages_changed_before_update(program));
}

Bytes kept_contents_bytes(const Program& program) {
  Bytes bytes = 0;
  for (const ChangedRange& range : changed_before_update(program)) {
    if (program.storages[range.storage].device.empty()) bytes += round_up_copy(range.bytes);
  }
  return bytes;
}

KeptContents::KeptContents(const Program& program, c10::Device device)
    : storages_(storages_changed_before_update(program)) {
  const Bytes bytes = kept_contents_bytes(program);
  if (bytes > 0) memory_ = new_bytes(bytes, device);
}

void KeptContents::use(const Program& program, const IdVector<StorageId, c10::Storage>& bound) {
  on_device_ = {};
  on_host_ = {};
  saved_ = false;
  if (storages_.empty()) return;
  Bytes place = 0;
  for (const ChangedRange& range : ranges_of(program, storages_)) {
    const c10::Storage& storage = bound[range.storage];
    if (!storage || range.bytes == 0) continue;
    const bool here = program.storages[range.storage].device.empty();
    Group& group = here ? on_device_ : on_host_;
    group.theirs.push_back(bytes_at(storage, range.offset, range.bytes));
    group.copies.push_back(here ? bytes_at(memory_.storage(), place, range.bytes)
                                : new_bytes(range.bytes, c10::kCPU));
    if (here) place += round_up_copy(range.bytes);
  }
}

void KeptContents::save() {
  for (Group* group : {&on_device_, &on_host_}) {
    if (!group->theirs.empty()) at::_foreach_copy_(group->copies, group->theirs);
  }
  saved_ = true;
}

void KeptContents::put_back() {
  if (!std::exchange(saved_, false)) return;
  for (Group* group : {&on_device_, &on_host_}) {
    if (!group->theirs.empty()) at::_foreach_copy_(group->theirs, group->copies);
  }
}

}  // namespace regen::execute
