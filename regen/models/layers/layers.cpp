#include "regen/models/layers/layers.h"

#include <algorithm>
#include <array>

namespace regen {
namespace {

// Elements of one sample's tensor, or of one parameter: far above any real network, and small
// enough that 4 bytes times a batch is still easy to check.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

constexpr std::array kKindNames = {
    "input",
    "conv2d",
    "depthwise_conv2d",
    "separable_conv2d",
    "conv2d_transpose",
    "dense",
    "embedding",
    "matmul",
    "attention",
    "batch_norm",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "activation",
    "max_pool2d",
    "average_pool2d",
    "global_average_pool",
    "zero_pad2d",
    "cropping2d",
    "lambda_crop",
    "up_sampling2d",
    "resize",
    "concat",
    "add",
    "multiply",
    "dropout",
    "drop_path",
    "flatten",
    "reshape",
    "rearrange",
    "roll",
    "add_parameter",
    "scale",
    "prepend_token",
    "select_token",
    "rotary",
};
static_assert(kKindNames.size() == static_cast<std::size_t>(LayerKind::kRotary) + 1);

constexpr std::array kActivationNames = {
    "linear", "relu", "relu6", "softmax", "sigmoid", "hard_sigmoid", "swish", "gelu", "tanh",
};
static_assert(kActivationNames.size() == static_cast<std::size_t>(Activation::kTanh) + 1);

}  // namespace

std::string_view to_string(LayerKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Activation activation) {
  return kActivationNames[static_cast<std::size_t>(activation)];
}

std::int64_t num_elements(const Shape& shape) {
  std::int64_t product = 1;
  for (std::int64_t size : shape) {
    if (size <= 0) return 0;
    if (product > kMaxElements / size) return kMaxElements + 1;
    product *= size;
  }
  return product;
}

std::string to_string(const Shape& shape) {
  std::string text;
  for (std::int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "scalar" : text;
}

void LayerGraph::fail(std::string message) {
  if (!error_) error_ = bad_input("model '" + name_ + "': " + std::move(message));
}

std::optional<Error> LayerGraph::error() const {
  if (error_) return error_;
  if (!output_.valid()) return bad_input("model '" + name_ + "': has no output, expected one");
  return std::nullopt;
}

Loss LayerGraph::loss() const {
  if (loss_ != Loss::kAuto) return loss_;
  const bool softmax = output_.valid() && layers_[output_].activation == Activation::kSoftmax;
  return softmax ? Loss::kNegativeLogLikelihood : Loss::kCrossEntropy;
}

LayerId LayerGraph::push(Layer layer, std::string name) {
  const auto kind = static_cast<std::size_t>(layer.kind);
  kind_counts_.resize(kKindNames.size(), 0);
  const std::int64_t number = ++kind_counts_[kind];
  if (name.empty()) name = std::string(kKindNames[kind]) + "_" + std::to_string(number);
  layer.name = scope_.empty() ? std::move(name) : scope_ + "/" + name;
  for (std::int64_t size : layer.shape) {
    if (size < 1) {
      fail("layer '" + layer.name + "' has the output shape " + to_string(layer.shape) +
           ", expected sizes of at least 1");
      break;
    }
  }
  if (num_elements(layer.shape) > kMaxElements) {
    fail("layer '" + layer.name + "' has the output shape " + to_string(layer.shape) +
         ", expected at most 2^40 elements");
  }
  // Later layers compute with this shape even after a mistake.
  if (error_) layer.shape = {1, 1, 1};
  return layers_.push_back(std::move(layer));
}

void LayerGraph::add_param(LayerId layer, const char* role, std::int64_t count, bool trainable) {
  Layer& owner = layers_[layer];
  if (error_) count = 0;
  if (count > kMaxElements) {
    fail("layer '" + owner.name + "' has a parameter of " + std::to_string(count) +
         " numbers, expected at most 2^40");
  }
  owner.params.push_back(params_.push_back({owner.name + "/" + role, count, trainable}));
}

bool LayerGraph::check_input(const char* what, LayerId x, std::size_t rank) {
  if (error_) return false;
  if (x.index() >= layers_.size()) {
    fail(std::string(what) + " reads a layer that does not exist");
    return false;
  }
  if (rank != 0 && shape(x).size() != rank) {
    fail(std::string(what) + " reads '" + layers_[x].name + "' of shape " + to_string(shape(x)) +
         ", expected " + std::to_string(rank) + " sizes");
    return false;
  }
  return true;
}

bool LayerGraph::check_positive(const char* what, LayerId x, std::int64_t value, const char* role) {
  if (value >= 1 && value <= kMaxElements) return true;
  fail(std::string(what) + " on '" + layers_[x].name + "': " + role + " " + std::to_string(value) +
       " is out of range, expected 1 to 2^40");
  return false;
}

LayerId LayerGraph::input(Shape shape, InputOptions options) {
  return push({.kind = LayerKind::kInput,
               .shape = std::move(shape),
               .element_bytes = options.element_bytes},
              std::move(options.name));
}

void LayerGraph::output(LayerId x, Loss loss) {
  if (output_.valid()) fail("output() was called twice, expected one output");
  if (!check_input("output", x)) return;
  output_ = x;
  loss_ = loss;
  if (layers_[x].kind == LayerKind::kInput) fail("the output is an input, expected a layer");
}

LayerId LayerGraph::push_same_shape(LayerKind kind, LayerId x, std::string name) {
  if (!check_input(kKindNames[static_cast<std::size_t>(kind)], x)) return push({}, "");
  return push({.kind = kind, .inputs = {x}, .shape = shape(x)}, std::move(name));
}

LayerId LayerGraph::activation(LayerId x, Activation activation, std::string name) {
  const LayerId y = push_same_shape(LayerKind::kActivation, x, std::move(name));
  layers_[y].activation = activation;
  return y;
}

LayerId LayerGraph::dropout(LayerId x, std::string name) {
  return push_same_shape(LayerKind::kDropout, x, std::move(name));
}

LayerId LayerGraph::drop_path(LayerId x, std::string name) {
  return push_same_shape(LayerKind::kDropPath, x, std::move(name));
}

LayerId LayerGraph::roll(LayerId x, std::string name) {
  return push_same_shape(LayerKind::kRoll, x, std::move(name));
}

LayerId LayerGraph::push_norm(LayerKind kind, LayerId x, NormOptions options) {
  const LayerId y = push_same_shape(kind, x, std::move(options.name));
  layers_[y].affine = options.scale;
  if (options.scale) add_param(y, "gamma", channels(y));
  if (options.center) add_param(y, "beta", channels(y));
  return y;
}

LayerId LayerGraph::batch_norm(LayerId x, NormOptions options) {
  const LayerId y = push_norm(LayerKind::kBatchNorm, x, std::move(options));
  add_param(y, "moving_mean", channels(y), /*trainable=*/false);
  add_param(y, "moving_variance", channels(y), /*trainable=*/false);
  return y;
}

LayerId LayerGraph::layer_norm(LayerId x, NormOptions options) {
  return push_norm(LayerKind::kLayerNorm, x, std::move(options));
}

LayerId LayerGraph::rms_norm(LayerId x, std::string name) {
  return push_norm(LayerKind::kRmsNorm, x, {.center = false, .name = std::move(name)});
}

LayerId LayerGraph::group_norm(LayerId x, std::int64_t groups, NormOptions options) {
  const LayerId y = push_norm(LayerKind::kGroupNorm, x, std::move(options));
  if (error_) return y;
  if (groups < 1 || channels(y) % groups != 0) {
    fail("layer '" + layers_[y].name + "': " + std::to_string(groups) + " groups do not divide " +
         std::to_string(channels(y)) + " channels");
  }
  layers_[y].groups = groups;
  return y;
}

LayerId LayerGraph::scale(LayerId x, std::string name) {
  const LayerId y = push_same_shape(LayerKind::kScale, x, std::move(name));
  add_param(y, "gamma", channels(y));
  return y;
}

LayerId LayerGraph::add_parameter(LayerId x, Shape shape_of_parameter, std::string name) {
  const LayerId y = push_same_shape(LayerKind::kAddParameter, x, std::move(name));
  if (error_) return y;
  const Shape& own = shape(y);
  if (shape_of_parameter.size() > own.size() ||
      !std::equal(shape_of_parameter.rbegin(), shape_of_parameter.rend(), own.rbegin())) {
    fail("layer '" + layers_[y].name + "': a parameter of shape " + to_string(shape_of_parameter) +
         " does not fit the end of " + to_string(own));
  }
  add_param(y, "parameter", num_elements(shape_of_parameter));
  return y;
}

LayerId LayerGraph::dense(LayerId x, std::int64_t units, DenseOptions options) {
  if (!check_input("dense", x) || !check_positive("dense", x, units, "units")) return push({}, "");
  Shape out = shape(x);
  if (out.empty()) out.push_back(1);
  const std::int64_t features = out.back();
  const std::int64_t weight = num_elements({features, units});
  out.back() = units;
  const LayerId y = push({.kind = LayerKind::kDense,
                          .inputs = {x},
                          .shape = std::move(out),
                          .activation = options.activation,
                          .bias = options.bias},
                         std::move(options.name));
  if (options.tied_to.valid()) {
    if (!check_input("tied dense", options.tied_to)) return y;
    const Layer& table = layers_[options.tied_to];
    if (table.params.empty() || params_[table.params[0]].count != weight) {
      fail("layer '" + layers_[y].name + "' is tied to '" + table.name +
           "', whose parameter has another size than " + std::to_string(weight));
      return y;
    }
    layers_[y].params.push_back(table.params[0]);
  } else {
    add_param(y, "kernel", weight);
  }
  if (options.bias) add_param(y, "bias", units);
  return y;
}

LayerId LayerGraph::push_broadcast(LayerKind kind, std::vector<LayerId> inputs, std::string name) {
  const char* what = kKindNames[static_cast<std::size_t>(kind)];
  if (inputs.empty()) fail(std::string(what) + " has no inputs, expected at least one");
  Shape out;
  for (LayerId x : inputs) {
    if (!check_input(what, x)) return push({}, "");
    if (num_elements(shape(x)) > num_elements(out) || out.empty()) out = shape(x);
  }
  for (LayerId x : inputs) {
    const Shape& in = shape(x);
    bool fits = in.size() <= out.size();
    for (std::size_t i = 1; fits && i <= in.size(); ++i) {
      const std::int64_t size = in[in.size() - i];
      fits = size == 1 || size == out[out.size() - i];
    }
    if (!fits) {
      fail(std::string(what) + " reads '" + layers_[x].name + "' of shape " + to_string(in) +
           ", which does not broadcast to " + to_string(out));
      return push({}, "");
    }
  }
  return push({.kind = kind, .inputs = std::move(inputs), .shape = std::move(out)},
              std::move(name));
}

LayerId LayerGraph::add(std::vector<LayerId> inputs, std::string name) {
  return push_broadcast(LayerKind::kAdd, std::move(inputs), std::move(name));
}

LayerId LayerGraph::multiply(std::vector<LayerId> inputs, std::string name) {
  return push_broadcast(LayerKind::kMultiply, std::move(inputs), std::move(name));
}

LayerId LayerGraph::concat(std::vector<LayerId> inputs, std::string name, int axis) {
  if (inputs.empty()) fail("concat has no inputs, expected at least one");
  for (LayerId x : inputs) {
    if (!check_input("concat", x)) return push({}, "");
  }
  if (error_) return push({}, "");
  Shape out = shape(inputs[0]);
  const int rank = static_cast<int>(out.size());
  const int place = axis < 0 ? axis + rank : axis;
  if (place < 0 || place >= rank) {
    fail("concat axis " + std::to_string(axis) + " is out of range for " + to_string(out));
    return push({}, "");
  }
  const auto at = static_cast<std::size_t>(place);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    Shape other = shape(inputs[i]);
    const std::int64_t size = other.size() > at ? other[at] : 0;
    if (other.size() == out.size()) other[at] = out[at];
    if (other != out) {
      fail("concat reads '" + layers_[inputs[i]].name + "' of shape " +
           to_string(shape(inputs[i])) + " beside " + to_string(out) +
           ", expected equal sizes off axis " + std::to_string(axis));
      return push({}, "");
    }
    out[at] += size;
  }
  return push({.kind = LayerKind::kConcat, .inputs = std::move(inputs), .shape = std::move(out)},
              std::move(name));
}

LayerId LayerGraph::flatten(LayerId x, std::string name) {
  if (!check_input("flatten", x)) return push({}, "");
  return push({.kind = LayerKind::kFlatten, .inputs = {x}, .shape = {num_elements(shape(x))}},
              std::move(name));
}

LayerId LayerGraph::reshape(LayerId x, Shape to, std::string name) {
  if (!check_input("reshape", x)) return push({}, "");
  const std::int64_t elements = num_elements(shape(x));
  const auto open = std::find(to.begin(), to.end(), -1);
  if (open != to.end()) {
    *open = 1;
    const std::int64_t rest = num_elements(to);
    if (rest > 0) *open = elements / rest;
  }
  if (num_elements(to) != elements) {
    fail("reshape of '" + layers_[x].name + "' from " + to_string(shape(x)) + " to " +
         to_string(to) + ", expected as many elements");
    return push({}, "");
  }
  return push({.kind = LayerKind::kReshape, .inputs = {x}, .shape = std::move(to)},
              std::move(name));
}

LayerId LayerGraph::rearrange(LayerId x, Shape to, std::string name) {
  const LayerId y = reshape(x, std::move(to), std::move(name));
  layers_[y].kind = LayerKind::kRearrange;
  return y;
}

LayerId LayerGraph::permute(LayerId x, std::vector<int> axes, std::string name) {
  if (!check_input("permute", x)) return push({}, "");
  const Shape& from = shape(x);
  std::vector<int> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  Shape to;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int>(i) || sorted.size() != from.size()) {
      fail("permute of '" + layers_[x].name + "' of shape " + to_string(from) +
           ": the axes are not a permutation of 0 to " + std::to_string(from.size() - 1));
      return push({}, "");
    }
    to.push_back(from[static_cast<std::size_t>(axes[i])]);
  }
  return rearrange(x, std::move(to), std::move(name));
}

}  // namespace regen
