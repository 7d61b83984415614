#include "regen/execute/program/operator_facts.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>

#include "regen/execute/program/operator_call.h"

namespace regen::execute {
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
  return !node.random && !is_island(node) && !node.outputs.empty() &&
         silently_written(node).empty() && written_arguments(schema).empty();
}

std::optional<ShorterRun> shorter_run(const Node& node) {
  constexpr std::size_t kTraining = 5;
  std::size_t epsilon = 7;
  if (node.op == "aten::_batch_norm_with_update_functional") {
    epsilon = 6;
  } else {
    const bool normalizes = node.op == "aten::cudnn_batch_norm" ||
                            node.op == "aten::native_batch_norm" ||
                            node.op == "aten::_native_batch_norm_legit_functional";
    if (!normalizes || !is_true(node, kTraining)) return {};
  }
  return ShorterRun{"aten::batch_norm_elemt",
                    {{false, 0}, {false, 1}, {false, 2}, {true, 1}, {true, 2}, {false, epsilon}}};
}

OverwritingNature overwriting_nature(const c10::OperatorHandle& handle) {
  static constexpr std::array<std::string_view, 7> kReducing = {
      "aten::_log_softmax",
      "aten::_log_softmax_backward_data",
      "aten::_softmax",
      "aten::_softmax_backward_data",
      "aten::batch_norm_backward",
      "aten::cudnn_batch_norm_backward",
      "aten::native_batch_norm_backward",
  };
  // Those to which PyTorch does not give its tag.
  static constexpr std::array<std::string_view, 8> kElementwise = {
      "aten::elu_backward",       "aten::hardsigmoid_backward", "aten::hardswish",
      "aten::hardswish_backward", "aten::hardtanh_backward",    "aten::leaky_relu_backward",
      "aten::mish_backward",      "aten::softplus_backward",
  };
  const std::string& name = handle.schema().name();
  // Kernels of copies are not made for a copy onto itself.
  if (name == "aten::clone") return OverwritingNature::kUnsafe;
  if (std::ranges::find(kReducing, name) != kReducing.end()) {
    return OverwritingNature::kReducesFirst;
  }
  const bool elementwise = handle.hasTag(at::Tag::pointwise) ||
                           std::ranges::find(kElementwise, name) != kElementwise.end();
  return elementwise ? OverwritingNature::kElementwise : OverwritingNature::kUnsafe;
}

bool is_island(const Node& node) {
  return node.op.starts_with("regen::island");
}

bool is_island_backward(const Node& node) {
  return node.op == "regen::island_backward";
}

bool holds_for_backward(const Node& island) {
  return is_island(island) && !is_island_backward(island) && island.args.size() > 1 &&
         island.args[1] == true;
}

bool runs_with_gradients(const Program& program, const Node& node) {
  if (!program.gradients) return false;
  return node.phase == Phase::kForward || node.phase == Phase::kLoss;
}

}  // namespace regen::execute
