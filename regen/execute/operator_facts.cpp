#include "regen/execute/operator_facts.h"

#include "regen/execute/operator_call.h"

namespace regen {
namespace {

bool is_true(const Node& node, std::size_t argument) {
  return argument < node.args.size() && node.args[argument].is_boolean() &&
         node.args[argument].get<bool>();
}

}  // namespace

std::vector<std::size_t> silently_written(const Node& node) {
  const bool batch_norm = node.op == "aten::native_batch_norm" ||
                          node.op == "aten::cudnn_batch_norm" ||
                          node.op == "aten::miopen_batch_norm";
  constexpr std::size_t kTraining = 5;
  if (batch_norm && is_true(node, kTraining)) return {3, 4};
  return {};
}

std::vector<CarriedArgument> carried_arguments(std::string_view op) {
  if (op == "aten::_native_batch_norm_legit_functional") return {{3, 3}, {4, 4}};
  if (op == "aten::_batch_norm_with_update_functional") return {{3, 4}, {4, 5}};
  return {};
}

std::vector<std::size_t> beside_the_problem(std::string_view op) {
  if (op == "aten::convolution") return {2};
  if (op == "aten::convolution_backward") return {3, 10};
  return {};
}

bool can_be_tried(const Node& node, const c10::FunctionSchema& schema) {
  return !node.random && !node.outputs.empty() && silently_written(node).empty() &&
         written_arguments(schema).empty();
}

bool runs_with_gradients(const Node& node) {
  return node.phase == Phase::kForward || node.phase == Phase::kLoss;
}

}  // namespace regen
