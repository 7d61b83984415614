#include "regen/execute/program/step_graph.h"

#include <algorithm>
#include <set>

#include "regen/execute/program/operator_call.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/execute/program/program_values.h"
#include "regen/execute/run/generator.h"
#include "regen/graph/builder.h"

namespace regen::execute {
namespace {

Bytes round_up(Bytes bytes, Bytes alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

TensorKind fixed_kind(Role role) {
  if (role == Role::kInput) return TensorKind::kInput;
  if (role == Role::kParameter) return TensorKind::kParam;
  return TensorKind::kState;
}

// Where the op comes from, for reports: plans do not depend on it.
std::string attributes_of(const Node& node) {
  Json attributes = Json::object();
  if (node.module) attributes["module"] = *node.module;
  if (!node.source.empty()) attributes["source"] = node.source;
  if (attributes.empty()) return "";
  return attributes.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class StepGraphMaker {
 public:
  StepGraphMaker(const Recording& recording, const StepGraphOptions& options)
      : program_(recording.program),
        records_(recording.nodes),
        options_(options),
        builder_(recording.program.name, CostUnit::kSecond) {}

  Result<StepGraph> make() {
    builder_.set_attributes(options_.attributes);
    find_makers();
    find_residents();
    add_tensors();
    for (std::size_t n = 0; n < program_.nodes.size(); ++n) {
      if (program_.boundary == n) add_boundary();
      if (records_[NodeId(n)].computes) REGEN_TRY(add_node(NodeId(n)));
    }
    if (program_.boundary == program_.nodes.size()) add_boundary();
    REGEN_ASSIGN(step_.graph, std::move(builder_).build());
    return std::move(step_);
  }

 private:
  void find_makers() {
    maker_.resize(program_.storages.size());
    readers_.resize(program_.storages.size());
    for (std::size_t n = 0; n < program_.nodes.size(); ++n) {
      const Node& node = program_.nodes[NodeId(n)];
      for (const ValueId value : values_read(node)) {
        readers_[program_.values[value].storage].push_back(NodeId(n));
      }
      for (const ValueId output : node.outputs) {
        if (!output.valid()) continue;
        const StorageId storage = program_.values[output].storage;
        if (program_.storages[storage].role == Role::kComputed && !maker_[storage].valid()) {
          maker_[storage] = NodeId(n);
        }
      }
    }
    result_.resize(program_.storages.size(), false);
    for (const ProgramResult& result : program_.results) {
      result_[program_.values[result.value].storage] = true;
    }
    find_gradients();
  }

  void find_gradients() {
    gradient_.resize(program_.storages.size(), false);
    if (!options_.lends_gradients || !program_.boundary) return;
    for (const ProgramResult& result : program_.results) {
      const StorageId storage = program_.values[result.value].storage;
      gradient_[storage] = maker_[storage].valid() && program_.storages[storage].device.empty();
    }
    for (const ProgramResult& result : program_.results) {
      if (result.kind != ResultKind::kGradient) {
        gradient_[program_.values[result.value].storage] = false;
      }
    }
    for (std::size_t n = 0; n < program_.nodes.size(); ++n) {
      const auto handle = find_operator(program_, NodeId(n));
      if (!handle.ok()) continue;  // refused when its turn comes
      for (const StorageId s :
           written_storages(program_, program_.nodes[NodeId(n)], handle->schema())) {
        gradient_[s] = false;
      }
    }
  }

  // Results leave the planned memory where the step has two parts.
  bool external(StorageId storage) const {
    return program_.boundary.has_value() && result_[storage] && maker_[storage].valid() &&
           !lent(storage);
  }

  // A gradient of the backward part, whole once it is made, that is no output too.
  bool lent(StorageId storage) const {
    return options_.lends_gradients && gradient_[storage] &&
           maker_[storage].index() >= *program_.boundary;
  }

  TensorKind kind(StorageId storage) const {
    if (!maker_[storage].valid()) return fixed_kind(program_.storages[storage].role);
    if (external(storage)) return TensorKind::kState;
    if (result_[storage]) return TensorKind::kOutput;
    const Phase phase = program_.nodes[maker_[storage]].phase;
    return phase == Phase::kBackward ? TensorKind::kGradient : TensorKind::kActivation;
  }

  void find_residents() {
    resident_.resize(program_.storages.size(), false);
    for (std::size_t n = 0; n < program_.nodes.size(); ++n) {
      if (!records_[NodeId(n)].shorter_seconds) continue;
      const Node& node = program_.nodes[NodeId(n)];
      const ShorterRun shorter = *shorter_run(node);
      for (const ShorterRun::Taken& taken : shorter.arguments) {
        if (taken.from_results)
          resident_[program_.values[node.outputs[taken.index]].storage] = true;
      }
    }
  }

  // The arena need not keep fixed ones, and outputs of the step are planned like all others.
  bool resident(StorageId storage) const {
    return resident_[storage] && kind(storage) == TensorKind::kActivation;
  }

  void add_tensors() {
    step_.tensors.resize(program_.storages.size());
    for (std::size_t s = 0; s < program_.storages.size(); ++s) {
      const StorageId id(s);
      const StorageSpec& storage = program_.storages[id];
      // What the caller brought is there, used or not; a made one that vanished is not.
      if (storage.role == Role::kComputed && !maker_[id].valid()) continue;
      const Bytes bytes = storage.device.empty() ? round_up(storage.bytes, options_.alignment) : 0;
      const bool stays = resident(id);
      step_.tensors[id] = builder_.add_tensor({storage.name, stays ? 0 : bytes, kind(id), ""});
      step_.storages.push_back(id);
      step_.resident.push_back(stays ? step_.resident_bytes : Bytes{-1});
      if (stays) step_.resident_bytes += bytes;
    }
    const Bytes runtime_bytes = options_.runtime_bytes + step_.resident_bytes;
    if (runtime_bytes > 0) {
      builder_.add_tensor({"runtime", runtime_bytes, TensorKind::kState, ""});
      step_.storages.push_back(StorageId());
      step_.resident.push_back(-1);
    }
  }

  Status add_node(NodeId id) {
    const Node& node = program_.nodes[id];
    REGEN_ASSIGN(const c10::OperatorHandle handle, find_operator(program_, id));
    OpSpec op;
    op.name = node.name;
    op.type = node.op.substr(node.op.rfind(':') + 1);
    op.phase = node.phase;
    op.random = node.random;
    op.recomputable = node.recomputable;
    op.attributes = attributes_of(node);
    std::set<TensorId> reads;
    for (const StorageId storage : storages_read(node, handle.schema())) {
      reads.insert(step_.tensors[storage]);
    }
    op.inputs.assign(reads.begin(), reads.end());
    for (const StorageId storage : written_storages(program_, node, handle.schema())) {
      if (maker_[storage].valid() && !external(storage)) {
        return bad_input(describe(program_, id) + ": writes to '" +
                         program_.storages[storage].name +
                         "', which an earlier node made; expected a program without in-place "
                         "changes of computed values");
      }
      add_once(op.mutates, step_.tensors[storage]);
    }
    add_made(id, op);
    op.variants.push_back(variant_of(records_[id]));
    step_.shortened.push_back(shortened(id));
    if (shortened(id)) op.variants.back().rerun_cost = records_[id].shorter_seconds;
    for (const NodeVariant& other : records_[id].alternatives) {
      op.variants.push_back(variant_of(other));
      op.variants.back().name = "less workspace " + std::to_string(op.variants.size() - 1);
    }
    add_overwriting_variants(id, op);
    op.choice_group = records_[id].choice_group;
    if (!op.mutates.empty()) op.recomputable = false;
    builder_.add_op(std::move(op));
    step_.nodes.push_back(id);
    return {};
  }

  // All that a shorter second run takes from the first stays.
  bool shortened(NodeId id) const {
    if (!records_[id].shorter_seconds) return false;
    const Node& node = program_.nodes[id];
    const ShorterRun shorter = *shorter_run(node);
    return std::ranges::all_of(shorter.arguments, [&](const ShorterRun::Taken& taken) {
      return !taken.from_results || resident(program_.values[node.outputs[taken.index]].storage);
    });
  }

  // The same call, with its first result in place of something that it reads.
  void add_overwriting_variants(NodeId id, OpSpec& op) const {
    const ValueId first =
        program_.nodes[id].outputs.empty() ? ValueId() : program_.nodes[id].outputs[0];
    if (op.outputs.empty() || !first.valid()) return;
    if (step_.tensors[program_.values[first].storage] != op.outputs[0]) return;
    for (const StorageId storage : records_[id].overwritable) {
      if (!maker_[storage].valid() || external(storage)) continue;  // the caller's
      VariantSpec variant = variant_of(records_[id]);
      variant.name = "in place of " + program_.storages[storage].name;
      variant.overwrites = step_.tensors[storage];
      op.variants.push_back(std::move(variant));
    }
  }

  VariantSpec variant_of(const NodeVariant& way) const {
    VariantSpec variant;
    variant.cost = way.seconds;
    variant.workspace = round_up(way.workspace, options_.alignment);
    return variant;
  }

  void add_made(NodeId id, OpSpec& op) const {
    for (const ValueId output : program_.nodes[id].outputs) {
      if (!output.valid()) continue;
      const StorageId storage = program_.values[output].storage;
      if (maker_[storage] != id) continue;  // a view of something older
      add_once(external(storage) ? op.mutates : op.outputs, step_.tensors[storage]);
    }
  }

  static void add_once(std::vector<TensorId>& list, TensorId tensor) {
    if (std::find(list.begin(), list.end(), tensor) == list.end()) list.push_back(tensor);
  }

  // Without running statistics: what else a batch norm returns does not depend on them, so that
  // their update need not stand in the way of a second run.
  std::vector<StorageId> storages_read(const Node& node, const c10::FunctionSchema& schema) const {
    std::vector<std::size_t> ignored = silently_written(node);
    for (const CarriedArgument& carried : carried_arguments(node.op)) {
      if (only_carried_back(node, carried)) ignored.push_back(carried.argument);
    }
    std::vector<StorageId> storages;
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      const Json* json = argument_json(node, schema, i);
      if (json == nullptr || std::find(ignored.begin(), ignored.end(), i) != ignored.end())
        continue;
      Node one;
      one.args.push_back(*json);
      for (const ValueId value : values_read(one))
        storages.push_back(program_.values[value].storage);
    }
    return storages;
  }

  // The new value is read only by the copy into the place it came from.
  bool only_carried_back(const Node& node, const CarriedArgument& carried) const {
    if (carried.result >= node.outputs.size() || !node.outputs[carried.result].valid()) return true;
    if (carried.argument >= node.args.size()) return false;
    Node one;
    one.args.push_back(node.args[carried.argument]);
    const std::vector<ValueId> origin = values_read(one);
    const StorageId made = program_.values[node.outputs[carried.result]].storage;
    if (origin.size() != 1 || result_[made]) return false;
    const StorageId home = program_.values[origin[0]].storage;
    return std::all_of(readers_[made].begin(), readers_[made].end(),
                       [&](NodeId id) { return copies_home(program_.nodes[id], made, home); });
  }

  // Does the node do nothing with `made` but copy it to `home`? It may copy others beside it.
  bool copies_home(const Node& node, StorageId made, StorageId home) const {
    if (node.op != "aten::copy_" && node.op != "aten::_foreach_copy_") return false;
    const std::vector<ValueId> values = values_read(node);  // all places, then all new contents
    const std::size_t pairs = values.size() / 2;
    for (std::size_t i = 0; i < pairs; ++i) {
      const bool this_one = program_.values[values[pairs + i]].storage == made;
      if (this_one && program_.values[values[i]].storage != home) return false;
    }
    return std::none_of(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(pairs),
                        [&](ValueId v) { return program_.values[v].storage == made; });
  }

  // Where outputs leave and their gradients arrive. It reads whatever the forward part leaves
  // behind, so that no order of ops can put that after it.
  void add_boundary() {
    OpSpec op;
    op.name = "boundary";
    op.type = "boundary";
    op.phase = Phase::kLoss;
    op.recomputable = false;
    std::set<TensorId> reads;
    for (const ProgramResult& result : program_.results) {
      const StorageId storage = program_.values[result.value].storage;
      if (result.kind == ResultKind::kOutput && step_.tensors[storage].valid()) {
        reads.insert(step_.tensors[storage]);
      }
    }
    for (std::size_t n = 0; n < *program_.boundary; ++n) {
      const auto handle = find_operator(program_, NodeId(n));
      if (!handle.ok()) continue;
      for (const StorageId s :
           written_storages(program_, program_.nodes[NodeId(n)], handle->schema())) {
        reads.insert(step_.tensors[s]);
      }
    }
    op.inputs.assign(reads.begin(), reads.end());
    for (std::size_t s = 0; s < program_.storages.size(); ++s) {
      if (program_.storages[StorageId(s)].role == Role::kTangent) {
        op.mutates.push_back(step_.tensors[StorageId(s)]);
      }
    }
    step_.boundary = builder_.add_op(std::move(op));
    step_.shortened.push_back(false);
    step_.nodes.push_back(NodeId());
  }

  const Program& program_;
  const IdVector<NodeId, NodeRecord>& records_;
  const StepGraphOptions& options_;
  GraphBuilder builder_;
  StepGraph step_;
  IdVector<StorageId, NodeId> maker_;
  IdVector<StorageId, std::vector<NodeId>> readers_;
  IdVector<StorageId, bool> result_;
  IdVector<StorageId, bool> gradient_;  // may be lent
  IdVector<StorageId, bool> resident_;  // read by shorter second runs
};

}  // namespace

Bytes generator_bytes(const Program& program, c10::Device device) {
  const auto random = std::count_if(program.nodes.begin(), program.nodes.end(),
                                    [](const Node& node) { return node.random; });
  return random == 0 ? 0 : (random + 1) * GeneratorState::saved_bytes(device);
}

Result<StepGraph> make_step_graph(const Recording& recording, const StepGraphOptions& options) {
  return StepGraphMaker(recording, options).make();
}

}  // namespace regen::execute
