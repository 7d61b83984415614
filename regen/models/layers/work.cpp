#include "regen/models/layers/work.h"

#include <cassert>

#include "regen/base/id.h"

namespace regen {
namespace {

double elements(const LayerGraph& net, LayerId x) {
  return static_cast<double>(num_elements(net.shape(x)));
}

double input_elements(const LayerGraph& net, const Layer& layer) {
  double sum = 0;
  for (LayerId x : layer.inputs) sum += elements(net, x);
  return sum;
}

// Elementwise operations for each element: exp, divide, compare and so on count one each.
double activation_steps(Activation activation) {
  switch (activation) {
    case Activation::kLinear:
      return 0;
    case Activation::kRelu:
      return 1;
    case Activation::kRelu6:
      return 2;
    case Activation::kSoftmax:
      return 5;                     // maximum, subtract, exp, sum, divide
    case Activation::kSigmoid:      // negate, exp, add, divide
    case Activation::kHardSigmoid:  // multiply, add, two bounds
      return 4;
    case Activation::kSwish:
    case Activation::kGelu:  // scale, erf, add, multiply, halve
    case Activation::kTanh:
      return 5;
  }
  return 0;
}

// Queries meet this many keys, for each query head and each of the leading sizes.
double attention_pairs(const LayerGraph& net, const Layer& layer) {
  const auto tokens = [&](LayerId x) {
    const Shape& shape = net.shape(x);
    return static_cast<double>(shape[shape.size() - 2]);
  };
  const double queries =
      elements(net, layer.inputs[0]) / static_cast<double>(net.channels(layer.inputs[0]));
  const LayerId keys = layer.inputs.size() == 1 ? layer.inputs[0] : layer.inputs[1];
  const double pairs = queries * tokens(keys) * static_cast<double>(layer.heads);
  // Causal: the pairs on and below the diagonal.
  return layer.causal ? pairs * (tokens(keys) + 1) / (2 * tokens(keys)) : pairs;
}

double separable_flops(const LayerGraph& net, const Layer& layer, double out) {
  const auto channels_in = static_cast<double>(net.channels(layer.inputs[0]));
  const auto channels_out = static_cast<double>(layer.shape.back());
  const auto area = static_cast<double>(layer.kernel.area());
  return area * channels_in * (out / channels_out) + channels_in * out;
}

double correct_flops(const LayerGraph& net, LayerId id) {
  const Layer& layer = net.layer(id);
  const double out = elements(net, id);
  const double in = input_elements(net, layer);
  const auto area = static_cast<double>(layer.kernel.area());
  const auto count = static_cast<double>(layer.inputs.size());
  switch (layer.kind) {
    case LayerKind::kInput:
    case LayerKind::kFlatten:
    case LayerKind::kReshape:
      return 0;
    case LayerKind::kConv2d:
    case LayerKind::kDepthwiseConv2d:
    case LayerKind::kSeparableConv2d:
    case LayerKind::kConv2dTranspose:
    case LayerKind::kDense:
    case LayerKind::kMatmul:
      return weight_flops(net, id) + (layer.bias && !layer.params.empty() ? out : 0);
    case LayerKind::kAttention: {
      const double head_size =
          out / static_cast<double>(layer.heads) / (out / static_cast<double>(layer.shape.back()));
      return attention_pairs(net, layer) * (2 * head_size + activation_steps(Activation::kSoftmax));
    }
    case LayerKind::kBatchNorm:
    case LayerKind::kLayerNorm:
    case LayerKind::kGroupNorm:
      return 7 * in;  // mean 1, variance 2, normalise 2, affine 2
    case LayerKind::kRmsNorm:
      return 4 * in;
    case LayerKind::kActivation:
      return activation_steps(layer.activation) * in;
    case LayerKind::kMaxPool2d:
    case LayerKind::kAveragePool2d:
      return area * out;
    case LayerKind::kGlobalAveragePool:
      return in;
    case LayerKind::kAdd:
    case LayerKind::kMultiply:
      return (count - 1) * out;
    case LayerKind::kDropout:
    case LayerKind::kDropPath:
      return 2 * out;  // draw, multiply
    case LayerKind::kResize:
      return 5 * out;
    case LayerKind::kUpSampling2d:
      return layer.interpolation == Interpolation::kBilinear ? 5 * out : out;
    case LayerKind::kRotary:
      return 3 * out;  // two products, one sum
    case LayerKind::kEmbedding:
    case LayerKind::kZeroPad2d:
    case LayerKind::kCropping2d:
    case LayerKind::kLambdaCrop:
    case LayerKind::kConcat:
    case LayerKind::kRearrange:
    case LayerKind::kRoll:
    case LayerKind::kAddParameter:
    case LayerKind::kScale:
    case LayerKind::kPrependToken:
    case LayerKind::kSelectToken:
      return out;  // a move is one operation
  }
  return 0;
}

double artifact_flops(const LayerGraph& net, LayerId id) {
  const Layer& layer = net.layer(id);
  const double out = elements(net, id);
  const double in = input_elements(net, layer);
  const auto channels_in =
      static_cast<double>(layer.inputs.empty() ? 1 : net.channels(layer.inputs[0]));
  const auto area = static_cast<double>(layer.kernel.area());
  switch (layer.kind) {
    case LayerKind::kConv2d:
      return area * channels_in / static_cast<double>(layer.groups) * out;
    case LayerKind::kConv2dTranspose:
      return channels_in * out;
    case LayerKind::kDepthwiseConv2d:
      return area * out;
    case LayerKind::kDense:
      return channels_in * static_cast<double>(layer.shape.back());
    case LayerKind::kBatchNorm:
      return 4 * in;
    case LayerKind::kActivation:
    case LayerKind::kAdd:
      return in;
    case LayerKind::kMaxPool2d:
    case LayerKind::kAveragePool2d:
    case LayerKind::kGlobalAveragePool:
    case LayerKind::kCropping2d:
    case LayerKind::kZeroPad2d:
    case LayerKind::kConcat:
    case LayerKind::kDropout:
    case LayerKind::kLambdaCrop:
      return 0;
    default:
      break;
  }
  // Kinds without a rule of their own, and those on which both tables agree.
  return correct_flops(net, id) +
         (layer.kind == LayerKind::kActivation ? 0 : activation_steps(layer.activation) * out);
}

}  // namespace

double weight_flops(const LayerGraph& net, LayerId id) {
  const Layer& layer = net.layer(id);
  const double out = elements(net, id);
  if (layer.inputs.empty()) return 0;
  const auto channels_in = static_cast<double>(net.channels(layer.inputs[0]));
  const auto area = static_cast<double>(layer.kernel.area());
  const auto groups = static_cast<double>(layer.groups);
  switch (layer.kind) {
    case LayerKind::kConv2d:
    case LayerKind::kDepthwiseConv2d:
      return area * (channels_in / groups) * out;
    case LayerKind::kSeparableConv2d:
      return separable_flops(net, layer, out);
    // Every input element meets the whole kernel of each filter.
    case LayerKind::kConv2dTranspose:
      return area * elements(net, layer.inputs[0]) * static_cast<double>(layer.shape.back());
    case LayerKind::kDense:
    case LayerKind::kMatmul:
      return channels_in * out;
    default:
      return 0;
  }
}

double forward_flops(const LayerGraph& net, LayerId id, FlopRules rules) {
  assert(rules != FlopRules::kDefault);
  if (rules == FlopRules::kArtifact) return artifact_flops(net, id);
  const Layer& layer = net.layer(id);
  const double fused =
      layer.kind == LayerKind::kActivation
          ? 0
          : activation_steps(layer.activation) * static_cast<double>(num_elements(layer.shape));
  return correct_flops(net, id) + fused;
}

std::int64_t parameter_bytes(const LayerGraph& net, LayerId id) {
  std::int64_t bytes = 0;
  for (ParamId p : net.layer(id).params) bytes += 4 * net.param(p).count;
  return bytes;
}

std::int64_t count_parameters(const LayerGraph& net) {
  IdVector<ParamId, bool> seen(net.num_params(), false);
  std::int64_t count = 0;
  for (LayerId id : net.order()) {
    for (ParamId p : net.layer(id).params) {
      if (!seen[p]) count += net.param(p).count;
      seen[p] = true;
    }
  }
  return count;
}

}  // namespace regen
