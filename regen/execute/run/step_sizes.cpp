#include "regen/execute/run/step_sizes.h"

#include <string>

namespace regen::execute {
namespace {

Error unknown(const char* what, std::size_t id, std::size_t count) {
  return bad_input("sizes: " + std::string(what) + " " + std::to_string(id) +
                   ", expected one of the program's " + std::to_string(count));
}

Status take_bytes(Program& program, const std::vector<StepSizes::SizedStorage>& storages) {
  for (const auto& [id, bytes] : storages) {
    if (id.index() >= program.storages.size()) {
      return unknown("storage", id.index(), program.storages.size());
    }
    StorageSpec& storage = program.storages[id];
    if (bytes < 0 || bytes > storage.bytes) {
      return bad_input("sizes: storage '" + storage.name + "' of " + std::to_string(bytes) +
                       " bytes, expected at most the " + std::to_string(storage.bytes) +
                       " that were planned");
    }
    storage.bytes = bytes;
  }
  return {};
}

// Bytes of the storage up to the end of the value.
Bytes end_of(const ValueSpec& value) {
  std::int64_t last = value.offset;
  for (std::size_t d = 0; d < value.sizes.size(); ++d) {
    if (value.sizes[d] == 0) return 0;
    last += (value.sizes[d] - 1) * value.strides[d];
  }
  return (last + 1) * static_cast<Bytes>(c10::elementSize(value.dtype));
}

Status take_values(Program& program, const std::vector<StepSizes::SizedValue>& values) {
  for (const StepSizes::SizedValue& sized : values) {
    if (sized.id.index() >= program.values.size()) {
      return unknown("value", sized.id.index(), program.values.size());
    }
    ValueSpec& value = program.values[sized.id];
    if (sized.sizes.size() != value.sizes.size() || sized.strides.size() != value.strides.size()) {
      return bad_input("sizes: value " + std::to_string(sized.id.index()) + " has " +
                       std::to_string(sized.sizes.size()) + " dimensions, expected " +
                       std::to_string(value.sizes.size()));
    }
    value.sizes = sized.sizes;
    value.strides = sized.strides;
    value.offset = sized.offset;
  }
  return {};
}

// Of what the step makes: what a caller brings is a view of the caller's memory.
Status check_values(const Program& program) {
  for (std::size_t v = 0; v < program.values.size(); ++v) {
    const ValueSpec& value = program.values[ValueId(v)];
    if (!value.storage.valid()) continue;
    const StorageSpec& storage = program.storages[value.storage];
    if (storage.role != Role::kComputed || end_of(value) <= storage.bytes) continue;
    return bad_input("sizes: value " + std::to_string(v) + " of '" + storage.name +
                     "' ends at byte " + std::to_string(end_of(value)) + ", expected " +
                     std::to_string(storage.bytes) + " at most");
  }
  return {};
}

Status take_calls(Program& program, const std::vector<StepSizes::SizedCall>& calls) {
  for (const StepSizes::SizedCall& call : calls) {
    if (call.id.index() >= program.nodes.size()) {
      return unknown("node", call.id.index(), program.nodes.size());
    }
    Node& node = program.nodes[call.id];
    if (call.args.size() != node.args.size() || call.kwargs.size() != node.kwargs.size()) {
      return bad_input("sizes: " + describe(program, call.id) + " with " +
                       std::to_string(call.args.size()) + " arguments, expected " +
                       std::to_string(node.args.size()));
    }
    node.args = call.args;
    node.kwargs = call.kwargs;
  }
  return {};
}

void size_allocations(const Program& program, NodeVariant& variant) {
  for (NodeAllocation& allocation : variant.allocations) {
    if (allocation.result.valid()) {
      allocation.bytes = program.storages[allocation.result].bytes;
    } else {
      allocation.at_most = true;
    }
  }
}

}  // namespace

Result<Recording> with_sizes(const Recording& recording, const StepSizes& sizes) {
  Recording sized = recording;
  REGEN_TRY(take_bytes(sized.program, sizes.storages));
  REGEN_TRY(take_values(sized.program, sizes.values));
  REGEN_TRY(check_values(sized.program));
  REGEN_TRY(take_calls(sized.program, sizes.calls));
  for (NodeRecord& node : sized.nodes) {
    size_allocations(sized.program, node);
    for (NodeVariant& other : node.alternatives) size_allocations(sized.program, other);
  }
  return sized;
}

}  // namespace regen::execute
