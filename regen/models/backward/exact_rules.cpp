// What the backward pass of each layer reads and makes.
#include <utility>

#include "regen/models/backward/exact_builder.h"
#include "regen/models/layers/sizes.h"

namespace regen {
namespace {

// Activations whose slope follows from the output alone.
bool backward_reads_output(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
    case Activation::kRelu6:
    case Activation::kSoftmax:
    case Activation::kSigmoid:
    case Activation::kTanh:
      return true;
    default:
      return false;
  }
}

OpSpec backward_op(std::string name, std::string_view type, std::vector<TensorId> inputs,
                   std::vector<TensorId> outputs) {
  return {.name = std::move(name),
          .type = "grad_" + std::string(type),
          .phase = Phase::kBackward,
          .inputs = std::move(inputs),
          .outputs = std::move(outputs)};
}

}  // namespace

TensorId ExactBuilder::new_gradient(LayerId id, const std::string& suffix) {
  return tensor("grad " + layer(id).name + suffix, output_bytes(layer(id), batch_),
                TensorKind::kGradient);
}

TensorId ExactBuilder::add_sum(const std::string& name, TensorId a, TensorId b, TensorId sum) {
  draft({.op = backward_op(name, "accumulate", {a, b}, {sum}),
         .cost = elements(sum),
         .overwritable = {a, b}});
  return sum;
}

// The whole gradient of a layer's output: what its readers sent back, added up.
TensorId ExactBuilder::gather(LayerId id) {
  const auto& parts = gradients_[id];
  TensorId sum = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string suffix = "/sum" + std::to_string(i);
    sum = add_sum("grad " + layer(id).name + suffix, sum, parts[i], new_gradient(id, suffix));
  }
  return sum;
}

// A parameter that several layers hold gets one partial gradient from each; the final tensor is
// made by finish_param_gradients.
TensorId ExactBuilder::new_param_gradient(ParamId p) {
  const Parameter& param = net_.param(p);
  auto& parts = param_gradients_[p];
  const bool whole = uses_[p] == 1;
  const TensorKind final_kind =
      optimizer_ == Optimizer::kNone ? TensorKind::kOutput : TensorKind::kGradient;
  std::string name = "grad " + param.name;
  if (!whole) name += "/part" + std::to_string(parts.size() + 1);
  parts.push_back(tensor(std::move(name), bounded_product(param.count, 4),
                         whole ? final_kind : TensorKind::kGradient));
  return parts.back();
}

void ExactBuilder::finish_param_gradients(LayerId id) {
  for (ParamId p : layer(id).params) {
    auto& parts = param_gradients_[p];
    if (uses_[p] < 2 || parts.size() != uses_[p]) continue;
    const std::string name = "grad " + net_.param(p).name;
    TensorId sum = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const bool last = i + 1 == parts.size();
      const bool is_output = last && optimizer_ == Optimizer::kNone;
      const std::string suffix = last ? "" : "/sum" + std::to_string(i);
      sum = add_sum(name + suffix, sum, parts[i],
                    tensor(name + suffix, bytes_[parts[i].index()],
                           is_output ? TensorKind::kOutput : TensorKind::kGradient));
    }
    parts.push_back(sum);
  }
}

void ExactBuilder::data_backward(LayerId id, TensorId g, std::size_t slot,
                                 std::vector<TensorId> reads, bool elementwise) {
  const Layer& l = layer(id);
  const LayerId x = l.inputs[slot];
  if (!needs_gradient_[x]) return;
  const std::string suffix = l.inputs.size() == 1 && gradients_[x].empty() ? "" : " by " + l.name;
  const TensorId dx = new_gradient(x, suffix);
  reads.push_back(g);
  Draft d{.op = backward_op("grad " + l.name + "/input" + (slot == 0 ? "" : std::to_string(slot)),
                            to_string(l.kind), std::move(reads), {dx}),
          .cost = work(id)};
  if (elementwise) d.overwritable = {g};
  draft(std::move(d));
  contribute(x, dx);
}

void ExactBuilder::parameter_backward(LayerId id, TensorId g, std::vector<TensorId> reads,
                                      double cost) {
  const Layer& l = layer(id);
  reads.push_back(g);
  std::vector<TensorId> outputs;
  for (ParamId p : l.params) {
    if (net_.param(p).trainable) outputs.push_back(new_param_gradient(p));
  }
  if (outputs.empty()) return;
  draft({.op = backward_op("grad " + l.name + "/parameters",
                           std::string(to_string(l.kind)) + "_parameters", std::move(reads),
                           std::move(outputs)),
         .cost = cost});
  finish_param_gradients(id);
}

// First the parameters, so that the input may go before its gradient comes.
void ExactBuilder::weight_backward(LayerId id, TensorId g) {
  const Layer& l = layer(id);
  parameter_backward(id, g, {storage(l.inputs[0])}, work(id));
  data_backward(id, g, 0, {params_[l.params[0]]}, /*elementwise=*/false);
}

void ExactBuilder::scale_backward(LayerId id, TensorId g) {
  const Layer& l = layer(id);
  parameter_backward(id, g, {storage(l.inputs[0])}, 2 * work(id));
  data_backward(id, g, 0, {params_[l.params[0]]}, /*elementwise=*/true);
}

// One op for everything, as the normalised input serves both gradients.
void ExactBuilder::norm_backward(LayerId id, TensorId g) {
  const Layer& l = layer(id);
  const LayerId x = l.inputs[0];
  Draft d{.op = backward_op("grad " + l.name, to_string(l.kind), {storage(x), saved_[id], g}, {}),
          .cost = 2 * work(id)};
  if (l.affine && !l.params.empty()) d.op.inputs.push_back(params_[l.params[0]]);
  if (needs_gradient_[x]) {
    d.op.outputs.push_back(new_gradient(x, gradients_[x].empty() ? "" : " by " + l.name));
    contribute(x, d.op.outputs.back());
  }
  for (ParamId p : l.params) {
    if (net_.param(p).trainable) d.op.outputs.push_back(new_param_gradient(p));
  }
  draft(std::move(d));
  finish_param_gradients(id);
}

void ExactBuilder::activation_backward(LayerId id, TensorId g) {
  const Layer& l = layer(id);
  const TensorId basis = backward_reads_output(l.activation) ? storage(id) : storage(l.inputs[0]);
  data_backward(id, g, 0, {basis}, l.activation != Activation::kSoftmax);
}

void ExactBuilder::attention_backward(LayerId id, TensorId g) {
  constexpr double kWorkRatio = 2.5;  // five products, one of them the scores again, against two
  const Layer& l = layer(id);
  Draft d{.op = backward_op("grad " + l.name, to_string(l.kind), {}, {}),
          .cost = kWorkRatio * work(id)};
  for (LayerId x : l.inputs) d.op.inputs.push_back(storage(x));
  d.op.inputs.insert(d.op.inputs.end(), {storage(id), saved_[id], g});
  for (LayerId x : l.inputs) {
    if (!needs_gradient_[x]) continue;
    d.op.outputs.push_back(new_gradient(x, gradients_[x].empty() ? "" : " by " + l.name));
    contribute(x, d.op.outputs.back());
  }
  for (ParamId p : l.params) {
    d.op.inputs.push_back(params_[p]);
    d.op.outputs.push_back(new_param_gradient(p));
  }
  draft(std::move(d));
  finish_param_gradients(id);
}

void ExactBuilder::multiply_backward(LayerId id, TensorId g) {
  const Layer& l = layer(id);
  for (std::size_t slot = 0; slot < l.inputs.size(); ++slot) {
    std::vector<TensorId> others;
    for (std::size_t i = 0; i < l.inputs.size(); ++i) {
      if (i != slot) others.push_back(storage(l.inputs[i]));
    }
    data_backward(id, g, slot, std::move(others), /*elementwise=*/true);
  }
}

void ExactBuilder::matmul_backward(LayerId id, TensorId g) {
  const Layer& l = layer(id);
  data_backward(id, g, 0, {storage(l.inputs[1])}, /*elementwise=*/false);
  data_backward(id, g, 1, {storage(l.inputs[0])}, /*elementwise=*/false);
}

// The gradient of a sum is the gradient of each term: no op, unless the term was broadcast.
void ExactBuilder::add_layer_backward(LayerId id, TensorId g) {
  const Layer& l = layer(id);
  for (std::size_t slot = 0; slot < l.inputs.size(); ++slot) {
    const LayerId x = l.inputs[slot];
    if (!needs_gradient_[x]) continue;
    if (num_elements(net_.shape(x)) == num_elements(l.shape)) {
      contribute(x, g);
    } else {
      data_backward(id, g, slot, {}, /*elementwise=*/false);
    }
  }
}

void ExactBuilder::add_backward(LayerId id) {
  const Layer& l = layer(id);
  const TensorId g = gather(id);
  switch (l.kind) {
    case LayerKind::kInput:
      return;
    case LayerKind::kConv2d:
    case LayerKind::kDepthwiseConv2d:
    case LayerKind::kSeparableConv2d:
    case LayerKind::kConv2dTranspose:
    case LayerKind::kDense:
      return weight_backward(id, g);
    case LayerKind::kEmbedding:
      return parameter_backward(id, g, {storage(l.inputs[0])}, work(id));
    case LayerKind::kMatmul:
      return matmul_backward(id, g);
    case LayerKind::kAttention:
      return attention_backward(id, g);
    case LayerKind::kBatchNorm:
    case LayerKind::kLayerNorm:
    case LayerKind::kRmsNorm:
    case LayerKind::kGroupNorm:
      return norm_backward(id, g);
    case LayerKind::kActivation:
      return activation_backward(id, g);
    case LayerKind::kMultiply:
      return multiply_backward(id, g);
    case LayerKind::kAdd:
      return add_layer_backward(id, g);
    case LayerKind::kScale:
      return scale_backward(id, g);
    case LayerKind::kAddParameter:
      parameter_backward(id, g, {}, work(id));
      return add_layer_backward(id, g);
    case LayerKind::kPrependToken:
      parameter_backward(id, g, {},
                         static_cast<double>(batch_) * static_cast<double>(l.shape.back()));
      return data_backward(id, g, 0, {}, /*elementwise=*/false);
    case LayerKind::kFlatten:
    case LayerKind::kReshape:
      return contribute(l.inputs[0], g);
    case LayerKind::kMaxPool2d:
      return data_backward(id, g, 0, {saved_[id]}, false);
    case LayerKind::kDropout:
    case LayerKind::kDropPath:
      return data_backward(id, g, 0, {saved_[id]}, true);
    case LayerKind::kRotary:
      return data_backward(id, g, 0, {}, true);
    case LayerKind::kConcat:
      for (std::size_t slot = 0; slot < l.inputs.size(); ++slot) {
        data_backward(id, g, slot, {}, /*elementwise=*/false);
      }
      return;
    case LayerKind::kAveragePool2d:
    case LayerKind::kGlobalAveragePool:
    case LayerKind::kZeroPad2d:
    case LayerKind::kCropping2d:
    case LayerKind::kLambdaCrop:
    case LayerKind::kUpSampling2d:
    case LayerKind::kResize:
    case LayerKind::kRearrange:
    case LayerKind::kRoll:
    case LayerKind::kSelectToken:
      return data_backward(id, g, 0, {}, /*elementwise=*/false);
  }
}

}  // namespace regen
