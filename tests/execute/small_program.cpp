#include "small_program.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace regen::execute {
namespace {

bool is_random(const std::string& op) {
  return op == "aten::native_dropout";
}

class ChainMaker {
 public:
  explicit ChainMaker(const ChainOptions& options)
      : options_(options), maker_("chain" + std::to_string(options.layers)) {}

  Program make() {
    // Four times as many rows as columns: activations are larger than the gradients of weights.
    const std::vector<std::int64_t> tall{4 * options_.width, options_.width};
    activations_.push_back(maker_.bring("x", Role::kInput, tall));
    for (std::size_t i = 0; i < options_.layers; ++i) forward(i);
    const ValueId tangent = finish_forward(tall);
    maker_.phase = Phase::kBackward;
    backward(tangent);
    if (options_.update) update();
    return maker_.program();
  }

 private:
  struct Layer {
    ValueId weight;
    ValueId mask;
    ValueId normed_input;
    std::vector<ValueId> norm;  // weight, bias, running mean and variance; saved mean and inverse
    ValueId gradient;
  };

  void forward(std::size_t i) {
    const std::vector<std::int64_t> square{options_.width, options_.width};
    const std::string name = "layer" + std::to_string(i);
    Layer layer;
    layer.weight = maker_.bring(name + ".weight", Role::kParameter, square);
    ValueId value = maker_.call1("aten::mm", {ref(activations_.back()), ref(layer.weight)});
    if (options_.dropout) {
      const auto made = maker_.call("aten::native_dropout", {ref(value), 0.25, true}, {true, true});
      value = made[0];
      layer.mask = made[1];
    }
    if (options_.batch_norm) value = normalise(name, value, layer);
    activations_.push_back(maker_.call1("aten::relu", {ref(value)}));
    layers_.push_back(layer);
  }

  ValueId normalise(const std::string& name, ValueId value, Layer& layer) {
    layer.normed_input = value;
    const std::vector<std::int64_t> row{options_.width};
    layer.norm = {maker_.bring(name + ".scale", Role::kParameter, row),
                  maker_.bring(name + ".shift", Role::kParameter, row),
                  maker_.bring(name + ".mean", Role::kBuffer, row),
                  maker_.bring(name + ".variance", Role::kBuffer, row)};
    const auto made = maker_.call("aten::_native_batch_norm_legit_functional",
                                  {ref(value), ref(layer.norm[0]), ref(layer.norm[1]),
                                   ref(layer.norm[2]), ref(layer.norm[3]), true, 0.1, 1e-5},
                                  {true, true, true, true, true});
    maker_.call("aten::copy_", {ref(layer.norm[2]), ref(made[3])}, {false});
    maker_.call("aten::copy_", {ref(layer.norm[3]), ref(made[4])}, {false});
    layer.norm.push_back(made[1]);
    layer.norm.push_back(made[2]);
    return made[0];
  }

  // The gradient of the last activation: the caller's, or ones as that of a sum.
  ValueId finish_forward(const std::vector<std::int64_t>& tall) {
    if (options_.boundary) {
      maker_.result(activations_.back(), ResultKind::kOutput, "y");
      maker_.program().boundary = maker_.program().nodes.size();
      return maker_.bring("gradient of y", Role::kTangent, tall);
    }
    const ValueId loss = maker_.call1("aten::sum", {ref(activations_.back())});
    maker_.result(loss, ResultKind::kOutput, "loss");
    maker_.phase = Phase::kBackward;
    return maker_.call1("aten::ones_like", {ref(activations_.back())});
  }

  void backward(ValueId gradient) {
    for (std::size_t i = options_.layers; i-- > 0;) {
      Layer& layer = layers_[i];
      gradient =
          maker_.call1("aten::threshold_backward", {ref(gradient), ref(activations_[i + 1]), 0});
      if (options_.batch_norm) gradient = normalise_backward(gradient, layer);
      if (options_.dropout) {
        gradient = maker_.call1("aten::native_dropout_backward",
                                {ref(gradient), ref(layer.mask), 1 / 0.75});
      }
      const ValueId turned = maker_.call1("aten::t", {ref(activations_[i])});
      layer.gradient = maker_.call1("aten::mm", {ref(turned), ref(gradient)});
      if (!options_.update) {
        maker_.result(layer.gradient, ResultKind::kGradient,
                      "layer" + std::to_string(i) + ".weight");
      }
      if (i == 0) return;
      const ValueId weight = maker_.call1("aten::t", {ref(layer.weight)});
      gradient = maker_.call1("aten::mm", {ref(gradient), ref(weight)});
    }
  }

  ValueId normalise_backward(ValueId gradient, const Layer& layer) {
    const auto& norm = layer.norm;
    return maker_.call(
        "aten::native_batch_norm_backward",
        {ref(gradient), ref(layer.normed_input), ref(norm[0]), ref(norm[2]), ref(norm[3]),
         ref(norm[4]), ref(norm[5]), true, 1e-5, Json::array({true, false, false})},
        {true, false, false})[0];
  }

  void update() {
    maker_.phase = Phase::kUpdate;
    for (const Layer& layer : layers_) {
      maker_.call("aten::add_.Tensor", {ref(layer.weight), ref(layer.gradient)}, {false},
                  {{"alpha", -0.01}});
    }
  }

  const ChainOptions options_;
  ProgramMaker maker_;
  std::vector<ValueId> activations_;
  std::vector<Layer> layers_;
};

}  // namespace

ProgramMaker::ProgramMaker(std::string name) {
  program_.name = std::move(name);
  program_.torch = "test";
  program_.device = "cpu";
}

ValueId ProgramMaker::bring(const std::string& name, Role role, std::vector<std::int64_t> sizes,
                            c10::ScalarType dtype) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t elements = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = elements;
    elements *= sizes[i];
  }
  const auto item = static_cast<Bytes>(c10::elementSize(dtype));
  const StorageId storage = program_.storages.push_back({name, role, elements * item, ""});
  return program_.values.push_back({storage, dtype, std::move(sizes), std::move(strides), 0});
}

std::vector<ValueId> ProgramMaker::call(const std::string& op, std::vector<Json> args,
                                        const std::vector<bool>& results, Json kwargs) {
  const std::size_t dot = op.find('.');
  Node node;
  node.name = op.substr(6, dot == std::string::npos ? dot : dot - 6) +
              std::to_string(program_.nodes.size());
  node.op = op.substr(0, dot);
  node.overload = dot == std::string::npos ? "" : op.substr(dot + 1);
  node.args = std::move(args);
  node.kwargs = std::move(kwargs);
  node.phase = phase;
  node.random = is_random(node.op);
  for (const bool read : results) {
    ValueId value;
    if (read) {
      const StorageId storage = program_.storages.push_back({node.name, Role::kComputed, 0, ""});
      value = program_.values.push_back({storage, c10::ScalarType::Float, {}, {}, 0});
    }
    node.outputs.push_back(value);
  }
  program_.nodes.push_back(node);
  return node.outputs;
}

void ProgramMaker::result(ValueId value, ResultKind kind, const std::string& name) {
  program_.results.push_back({value, kind, name});
}

Json ref(ValueId value) {
  return {{"value", value.index()}};
}

Program make_chain(const ChainOptions& options) {
  return ChainMaker(options).make();
}

std::string save_program(Program program, const std::string& name) {
  std::string folder = ::testing::TempDir() + "regen_" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream data(folder + "/data.bin", std::ios::binary);
  at::manual_seed(11);
  Bytes offset = 0;
  program.data.clear();
  for (std::size_t s = 0; s < program.storages.size(); ++s) {
    const StorageSpec& storage = program.storages[StorageId(s)];
    if (storage.role == Role::kComputed || storage.role == Role::kTangent) continue;
    const at::Tensor contents = at::rand({storage.bytes / 4}) * 0.4 - 0.1;
    data.write(static_cast<const char*>(contents.const_data_ptr()), storage.bytes);
    program.data.push_back({StorageId(s), offset, storage.bytes});
    offset += storage.bytes;
  }
  std::ofstream(folder + "/program.json") << write_program(program);
  return folder;
}

}  // namespace regen::execute
