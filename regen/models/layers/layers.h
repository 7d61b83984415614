// A network as a graph of layers, written the way Keras' functional models are:
//
//   LayerGraph net("tiny");
//   LayerId x = net.input({224, 224, 3});
//   x = net.conv2d(x, 64, {.kernel = 3, .activation = Activation::kRelu});
//   x = net.dense(net.flatten(x), 1000, {.activation = Activation::kSoftmax});
//   net.output(x);
//
// The first mistake (a shape that does not fit, a size out of range) is kept and reported by
// error(); what is added after it does not matter, so callers need not test every call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "regen/base/id.h"
#include "regen/base/result.h"
#include "regen/models/layers/layer.h"

namespace regen {

struct ConvOptions {
  Size2 kernel = 1;
  Size2 stride = 1;
  Size2 dilation = 1;
  std::int64_t groups = 1;  // conv2d only
  Padding padding = Padding::kValid;
  bool bias = true;
  Activation activation = Activation::kLinear;
  std::string name;  // empty: made from the kind and a number
};

struct PoolOptions {
  Size2 window = 2;
  std::optional<Size2> stride;  // absent: the window
  Padding padding = Padding::kValid;
  std::string name;
};

struct DenseOptions {
  bool bias = true;
  Activation activation = Activation::kLinear;
  LayerId tied_to;  // an embedding whose table serves as the weight
  std::string name;
};

struct NormOptions {
  bool scale = true;   // batch norm: trainable gamma
  bool center = true;  // trainable beta
  std::string name;
};

struct AttentionOptions {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  // 0: as heads
  bool causal = false;
  std::int64_t bias_parameters = 0;  // learned relative-position table, added to the scores
  std::string name;
};

struct InputOptions {
  int element_bytes = 4;  // 8 for token numbers
  std::string name;
};

class LayerGraph {
 public:
  explicit LayerGraph(std::string name) : name_(std::move(name)) {}

  // Put before the names of the layers added from now on, with a slash; empty: nothing.
  void set_scope(std::string scope) { scope_ = std::move(scope); }

  // At least one input; each is a layer that the orders below leave out.
  LayerId input(Shape shape, InputOptions options = {});

  // Images: inputs are {height, width, channels}.
  LayerId conv2d(LayerId x, std::int64_t filters, ConvOptions options = {});
  LayerId depthwise_conv2d(LayerId x, ConvOptions options = {});
  LayerId separable_conv2d(LayerId x, std::int64_t filters, ConvOptions options = {});
  LayerId conv2d_transpose(LayerId x, std::int64_t filters, ConvOptions options = {});
  LayerId max_pool2d(LayerId x, PoolOptions options = {});
  LayerId average_pool2d(LayerId x, PoolOptions options = {});
  LayerId zero_pad2d(LayerId x, Border border, std::string name = {});
  LayerId cropping2d(LayerId x, Border border, std::string name = {});
  LayerId lambda_crop(LayerId x, Border border, std::string name = {});
  LayerId up_sampling2d(LayerId x, Size2 factor,
                        Interpolation interpolation = Interpolation::kNearest,
                        std::string name = {});
  LayerId resize(LayerId x, Size2 size, std::string name = {});  // bilinear

  // Any shape; the last size is the channels.
  LayerId global_average_pool(LayerId x, std::string name = {});  // {.., C} to {C}
  LayerId batch_norm(LayerId x, NormOptions options = {});
  LayerId layer_norm(LayerId x, NormOptions options = {});
  LayerId rms_norm(LayerId x, std::string name = {});
  LayerId group_norm(LayerId x, std::int64_t groups, NormOptions options = {});
  LayerId activation(LayerId x, Activation activation, std::string name = {});
  LayerId relu(LayerId x, std::string name = {}) {
    return activation(x, Activation::kRelu, std::move(name));
  }
  LayerId dense(LayerId x, std::int64_t units, DenseOptions options = {});
  LayerId dropout(LayerId x, std::string name = {});
  LayerId drop_path(LayerId x, std::string name = {});
  LayerId scale(LayerId x, std::string name = {});
  // The parameter's shape must be the end of x's shape.
  LayerId add_parameter(LayerId x, Shape shape, std::string name = {});

  // Several inputs. add and multiply broadcast: an input may have size 1, or lack leading
  // sizes, where the largest has more.
  LayerId add(std::vector<LayerId> inputs, std::string name = {});
  LayerId multiply(std::vector<LayerId> inputs, std::string name = {});
  LayerId concat(std::vector<LayerId> inputs, std::string name = {}, int axis = -1);
  LayerId matmul(LayerId a, LayerId b, std::string name = {});  // {..,m,k} by {..,k,n}

  // Views: no memory of their own.
  LayerId flatten(LayerId x, std::string name = {});
  LayerId reshape(LayerId x, Shape shape, std::string name = {});  // one size may be -1
  // Copies in another order.
  LayerId permute(LayerId x, std::vector<int> axes, std::string name = {});
  LayerId rearrange(LayerId x, Shape shape, std::string name = {});
  LayerId roll(LayerId x, std::string name = {});  // cyclic shift; the amount does not matter here

  // Sequences: {tokens, features}, with any leading sizes (windows).
  LayerId embedding(LayerId tokens, std::int64_t vocabulary, std::int64_t features,
                    std::string name = {});  // {tokens} to {tokens, features}
  LayerId prepend_token(LayerId x, std::string name = {});
  LayerId select_token(LayerId x, std::string name = {});  // {.., tokens, C} to {.., C}
  LayerId rotary(LayerId x, std::string name = {});
  // Scaled dot products that never store the scores. Query {.., L, heads*d}, key and value
  // {.., M, kv_heads*d}; output shaped as the query.
  LayerId attention(LayerId query, LayerId key, LayerId value, AttentionOptions options);
  // The same for one array {.., L, (heads + 2*kv_heads)*d} that holds all three.
  LayerId attention_packed(LayerId qkv, AttentionOptions options);
  // dense to q, k, v packed, attention, dense back: three layers.
  LayerId multi_head_attention(LayerId x, AttentionOptions options, bool bias = true);

  // Exactly once, last.
  void output(LayerId x, Loss loss = Loss::kAuto);

  const std::string& name() const { return name_; }
  const Shape& shape(LayerId x) const { return layers_[x].shape; }
  std::int64_t channels(LayerId x) const { return shape(x).empty() ? 1 : shape(x).back(); }
  const Layer& layer(LayerId x) const { return layers_[x]; }
  std::size_t num_layers() const { return layers_.size(); }
  const Parameter& param(ParamId p) const { return params_[p]; }
  std::size_t num_params() const { return params_.size(); }
  LayerId output_layer() const { return output_; }
  Loss loss() const;  // never kAuto

  // Also set when output() was not called.
  std::optional<Error> error() const;

  // The layers that the output needs, inputs left out, in the order of Keras' `model.layers`:
  // a depth-first walk from the output numbers layers when it first meets them; layers are
  // sorted by falling distance from the output (the longest way), ties by that number.
  std::vector<LayerId> order() const;

  // For passes that rewrite a graph. `layer.shape` must be set; names are used as given.
  LayerId append(Layer layer) { return layers_.push_back(std::move(layer)); }
  ParamId append_param(Parameter param) { return params_.push_back(std::move(param)); }

 private:
  LayerId push(Layer layer, std::string name);
  LayerId push_conv(LayerKind kind, LayerId x, std::int64_t filters, ConvOptions options,
                    const std::vector<std::pair<const char*, std::int64_t>>& weights);
  LayerId push_pool(LayerKind kind, LayerId x, PoolOptions options);
  LayerId push_crop(LayerKind kind, LayerId x, Border border, std::string name);
  LayerId push_norm(LayerKind kind, LayerId x, NormOptions options);
  LayerId push_broadcast(LayerKind kind, std::vector<LayerId> inputs, std::string name);
  LayerId push_same_shape(LayerKind kind, LayerId x, std::string name);
  LayerId push_attention(std::vector<LayerId> inputs, std::int64_t head_size, Shape shape,
                         AttentionOptions options);
  void add_param(LayerId layer, const char* role, std::int64_t count, bool trainable = true);
  bool check_input(const char* what, LayerId x, std::size_t rank = 0);
  bool check_positive(const char* what, LayerId x, std::int64_t value, const char* role);
  void fail(std::string message);

  std::string name_;
  std::string scope_;
  IdVector<LayerId, Layer> layers_;
  IdVector<ParamId, Parameter> params_;
  std::vector<std::int64_t> kind_counts_;
  LayerId output_;
  Loss loss_ = Loss::kAuto;
  std::optional<Error> error_;
};

}  // namespace regen
