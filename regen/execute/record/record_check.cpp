#include "regen/execute/record/record_check.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "regen/execute/program/below_autograd.h"
#include "regen/execute/program/operator_call.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/execute/record/call_measurement.h"

namespace regen::execute {
namespace {

// A number on the host: the state of a generator, a seed.
constexpr Bytes kMostHostBytes = Bytes{1} << 20;

class RecordCheck {
 public:
  RecordCheck(const CallRecord& record, const Program& program, NodeId id,
              const CallArguments& arguments, const ExecutionDevice& device)
      : record_(record),
        program_(program),
        id_(id),
        node_(program.nodes[id]),
        arguments_(arguments),
        device_(device) {}

  Status check() const {
    REGEN_ASSIGN(const c10::OperatorHandle handle, find_operator(program_, id_));
    if (record_.results.size() < node_.outputs.size()) {
      return problem(std::to_string(record_.results.size()) + " results found, expected " +
                     std::to_string(node_.outputs.size()));
    }
    bool views = false;
    for (std::size_t r = 0; r < node_.outputs.size(); ++r) {
      if (!node_.outputs[r].valid()) continue;
      REGEN_TRY(check_result(r));
      views |= record_.results[r].source == ResultSource::kArgument;
    }
    if (views) REGEN_TRY(check_views(handle));
    REGEN_TRY(check_claims(handle));
    return check_alternatives(handle);
  }

 private:
  static Error problem(const std::string& what) { return bad_input(what); }

  Status check_result(std::size_t r) const {
    const ResultLayout& layout = record_.results[r];
    const std::string name = "result " + std::to_string(r);
    Bytes room = 0;
    switch (layout.source) {
      case ResultSource::kUndefined:
        return problem(name + " is undefined, expected one that is read later");
      case ResultSource::kArgument:
        if (layout.index >= arguments_.storages().size()) {
          return problem(name + " lies in argument " + std::to_string(layout.index) + " of " +
                         std::to_string(arguments_.storages().size()));
        }
        room = program_.storages[arguments_.storages()[layout.index]].bytes;
        break;
      case ResultSource::kAllocation:
        if (layout.index > record_.allocations.size()) {
          return problem(name + " lies in allocation " + std::to_string(layout.index) + " of " +
                         std::to_string(record_.allocations.size()));
        }
        // One that has no bytes lies behind the last.
        if (layout.index < record_.allocations.size()) {
          room = record_.allocations[layout.index].bytes;
        }
        break;
      case ResultSource::kHost:
        room = static_cast<Bytes>(layout.index);
        if (device_.torch_device().is_cpu() || room > kMostHostBytes) {
          return problem(name + " lies on the host, expected it on " +
                         device_.torch_device().str());
        }
        break;
    }
    const ValueSpec view{StorageId(), layout.dtype, layout.sizes, layout.strides, layout.offset};
    if (fits_in(view, room)) return {};
    return problem(name + " reaches beyond its memory of " + std::to_string(room) + " bytes");
  }

  // What the operator makes of tensors of these layouts that have no memory. A view is no
  // computation, so this takes a few microseconds.
  Status check_views(const c10::OperatorHandle& handle) const {
    std::vector<at::Tensor> memory;
    for (const StorageId storage : arguments_.storages()) {
      memory.push_back(at::empty({program_.storages[storage].bytes},
                                 at::TensorOptions().dtype(at::kByte).device(at::kMeta)));
    }
    std::vector<at::Tensor> made;
    try {
      REGEN_ASSIGN(made, call_without_memory(handle, memory));
    } catch (const std::exception&) {
      return problem("it is said to return views, which could not be made here");
    }
    for (std::size_t r = 0; r < node_.outputs.size(); ++r) {
      const ResultLayout& layout = record_.results[r];
      if (!node_.outputs[r].valid() || layout.source != ResultSource::kArgument) continue;
      if (r >= made.size() || !is_laid_out(made[r], layout) ||
          !made[r].storage().is_alias_of(memory[layout.index].storage())) {
        return problem("result " + std::to_string(r) + " is not the view that it is said to be");
      }
    }
    return {};
  }

  Result<std::vector<at::Tensor>> call_without_memory(const c10::OperatorHandle& handle,
                                                      const std::vector<at::Tensor>& memory) const {
    std::vector<double> scalars;
    for (const ScalarSpec& scalar : program_.scalars) scalars.push_back(scalar.value);
    const ArgumentSource source{[&](ValueId value) {
                                  const ValueSpec& spec = program_.values[value];
                                  return at::empty({0}, memory[0].options().dtype(spec.dtype))
                                      .set_(memory[arguments_.place(spec.storage)].storage(),
                                            spec.offset, spec.sizes, spec.strides);
                                },
                                scalars, c10::Device(c10::kMeta)};
    REGEN_ASSIGN(torch::jit::Stack stack, make_arguments(program_, id_, handle.schema(), source));
    const BelowAutograd below(runs_with_gradients(program_, node_));
    handle.callBoxed(stack);
    return take_results(stack);
  }

  static bool is_laid_out(const at::Tensor& made, const ResultLayout& layout) {
    return made.defined() && made.scalar_type() == layout.dtype &&
           made.sizes() == c10::IntArrayRef(layout.sizes) &&
           made.strides() == c10::IntArrayRef(layout.strides) &&
           made.storage_offset() == layout.offset;
  }

  Status check_claims(const c10::OperatorHandle& handle) const {
    if (record_.overwritable && !record_.overwritable->empty()) {
      if (!worth_a_trial(handle, record_) || !can_be_tried(node_, handle.schema())) {
        return problem(
            "its result is said to fit over an argument, which this operator may read "
            "after it has written");
      }
      for (const std::size_t storage : *record_.overwritable) {
        if (storage >= arguments_.storages().size()) {
          return problem("argument " + std::to_string(storage) + " of " +
                         std::to_string(arguments_.storages().size()) +
                         " is said to be overwritten");
        }
      }
    }
    if (record_.shorter_seconds && (!shorter_run(node_) || !is_conclusive(record_))) {
      return problem("a shorter second run is claimed, which this operator does not have");
    }
    return {};
  }

  Status check_alternatives(const c10::OperatorHandle& handle) const {
    if (!record_.alternatives || record_.alternatives->empty()) return {};
    if (!can_be_tried(node_, handle.schema())) {
      return problem("other algorithms are claimed of an operator that may not run twice");
    }
    // Results come in the same order in all of them.
    const std::vector<Bytes> lasting = lasting_bytes(record_.allocations);
    for (const CallAlternative& alternative : *record_.alternatives) {
      if (lasting_bytes(alternative.allocations) != lasting) {
        return problem("an alternative makes other results");
      }
    }
    return {};
  }

  static std::vector<Bytes> lasting_bytes(const std::vector<CallAllocation>& allocations) {
    std::vector<Bytes> bytes;
    for (const CallAllocation& a : allocations) {
      if (a.death == CallAllocation::kForever) bytes.push_back(a.bytes);
    }
    return bytes;
  }

  const CallRecord& record_;
  const Program& program_;
  const NodeId id_;
  const Node& node_;
  const CallArguments& arguments_;
  const ExecutionDevice& device_;
};

}  // namespace

Status check_record(const CallRecord& record, const Program& program, NodeId node,
                    const CallArguments& arguments, const ExecutionDevice& device) {
  Status status = RecordCheck(record, program, node, arguments, device).check();
  if (status.ok()) return status;
  return bad_input("a measurement is not of " + describe(program, node) + ": " +
                   status.error().message);
}

}  // namespace regen::execute
