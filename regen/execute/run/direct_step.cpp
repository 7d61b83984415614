#include "regen/execute/run/direct_step.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "regen/execute/program/below_autograd.h"
#include "regen/execute/program/operator_call.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/execute/program/program_values.h"
#include "regen/execute/run/instructions.h"
#include "regen/execute/run/warn_once.h"

namespace regen::execute {
namespace {

bool names_value(const Json& json) {
  return json.is_object() && json.size() == 1 && json.contains("value");
}

ValueId value_of(const Json& json) {
  return ValueId(json["value"].get<std::size_t>());
}

}  // namespace

Result<std::unique_ptr<DirectStep>> DirectStep::make(const Program& program,
                                                     const ProgramData& data,
                                                     std::shared_ptr<ExecutionDevice> device) {
  std::unique_ptr<DirectStep> step(new DirectStep);
  step->program_ = program;
  step->device_ = std::move(device);
  step->bound_.resize(program.values.size());
  for (std::size_t v = 0; v < program.values.size(); ++v) {
    const ValueSpec& value = program.values[ValueId(v)];
    const at::Tensor& memory = data.tensor(value.storage);
    if (memory.defined()) step->bound_[ValueId(v)] = make_view(value, memory.storage());
  }
  for (std::size_t n = 0; n < program.nodes.size(); ++n) REGEN_TRY(step->add_call(NodeId(n)));
  step->find_last_uses();
  return step;
}

Status DirectStep::add_call(NodeId id) {
  const Node& node = program_.nodes[id];
  REGEN_ASSIGN(const c10::OperatorHandle handle, find_operator(program_, id));
  std::vector<double> scalars;
  for (const ScalarSpec& scalar : program_.scalars) scalars.push_back(scalar.value);
  const ArgumentSource source{[](ValueId) { return at::Tensor(); }, scalars,
                              device_->torch_device()};
  REGEN_ASSIGN(torch::jit::Stack arguments, make_arguments(program_, id, handle.schema(), source));
  Call call{handle, id, std::move(arguments), {}, {}, runs_with_gradients(program_, node)};
  find_places(node, call);
  calls_.push_back(std::move(call));
  return {};
}

void DirectStep::find_places(const Node& node, Call& call) const {
  const c10::FunctionSchema& schema = call.handle.schema();
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const Json* json = argument_json(node, schema, i);
    if (json == nullptr) continue;
    if (names_value(*json)) call.places.push_back({i, -1, value_of(*json)});
    if (!json->is_array()) continue;
    for (std::size_t k = 0; k < json->size(); ++k) {
      if (!names_value((*json)[k])) continue;
      call.places.push_back({i, static_cast<std::int64_t>(k), value_of((*json)[k])});
    }
  }
}

void DirectStep::find_last_uses() {
  IdVector<ValueId, bool> used_later(program_.values.size(), false);
  for (const ProgramResult& result : program_.results) used_later[result.value] = true;
  for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
    const Node& node = program_.nodes[call->node];
    std::vector<ValueId> touched = values_read(node);
    touched.insert(touched.end(), node.outputs.begin(), node.outputs.end());
    for (const ValueId value : touched) {
      if (!value.valid() || used_later[value]) continue;
      used_later[value] = true;
      call->last_uses.push_back(value);
    }
  }
}

Status DirectStep::run() {
  try {
    device_->run([&] {
      const BelowAutograd below;
      const WarnOnce warnings;
      values_ = bound_;
      for (const Call& call : calls_) run_call(call);
    });
  } catch (const std::exception& error) {
    stack_.clear();
    device_->synchronize();
    return bad_input(error.what());
  }
  return {};
}

void DirectStep::run_call(const Call& call) {
  stack_.assign(call.arguments.begin(), call.arguments.end());
  for (const Place& place : call.places) {
    c10::IValue& argument = stack_[place.argument];
    if (place.item < 0) {
      argument = values_[place.value];
      continue;
    }
    // Lists are shared by reference: the first tensor of one needs a list of its own.
    if (argument.is(call.arguments[place.argument]))
      argument = c10::IValue(argument.toList().copy());
    argument.toList().set(static_cast<std::size_t>(place.item), values_[place.value]);
  }
  c10::GradMode::set_enabled(call.forward);
  call.handle.callBoxed(stack_);
  const std::vector<at::Tensor> results = take_results(stack_);
  const Node& node = program_.nodes[call.node];
  for (std::size_t r = 0; r < node.outputs.size() && r < results.size(); ++r) {
    if (node.outputs[r].valid()) values_[node.outputs[r]] = results[r];
  }
  for (const ValueId value : call.last_uses) values_[value] = at::Tensor();
}

at::Tensor DirectStep::result(std::size_t index) const {
  return values_[program_.results[index].value];
}

void DirectStep::forget() {
  values_ = IdVector<ValueId, at::Tensor>();
}

}  // namespace regen::execute
