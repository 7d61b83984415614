// What a network is made of: layers, their kinds and parameters. Built by LayerGraph (layers.h).
//
//   Shape      sizes without the batch, channels last: {height, width, channels} for images,
//              {tokens, features} for sequences, any leading sizes before these two for windows.
//   Layer      one node: what it does, its inputs, its output shape, its parameters.
//   Parameter  an array of 4-byte numbers; two layers may share one (tied embeddings).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/id.h"

namespace regen {

using LayerId = Id<struct LayerTag>;
using ParamId = Id<struct ParamTag>;
using Shape = std::vector<std::int64_t>;

enum class Activation : std::uint8_t {
  kLinear,
  kRelu,
  kRelu6,
  kSoftmax,
  kSigmoid,
  kHardSigmoid,
  kSwish,  // also called silu
  kGelu,
  kTanh,
};
enum class Padding : std::uint8_t { kValid, kSame };
enum class Interpolation : std::uint8_t { kNearest, kBilinear };
// What compares the output with the targets. kAuto: kNegativeLogLikelihood after a softmax,
// kCrossEntropy otherwise.
enum class Loss : std::uint8_t { kAuto, kNegativeLogLikelihood, kCrossEntropy, kMeanSquare };

enum class LayerKind : std::uint8_t {
  kInput,
  kConv2d,
  kDepthwiseConv2d,
  kSeparableConv2d,
  kConv2dTranspose,
  kDense,
  kEmbedding,
  kMatmul,
  kAttention,
  kBatchNorm,
  kLayerNorm,
  kRmsNorm,
  kGroupNorm,
  kActivation,
  kMaxPool2d,
  kAveragePool2d,
  kGlobalAveragePool,
  kZeroPad2d,
  kCropping2d,
  kLambdaCrop,  // a slice written as a Lambda layer
  kUpSampling2d,
  kResize,  // bilinear to a given size: PSPNet's Interp, or a Lambda
  kConcat,
  kAdd,
  kMultiply,
  kDropout,
  kDropPath,  // stochastic depth: drops whole samples
  kFlatten,
  kReshape,
  kRearrange,  // the same elements in another order: permute, windows, patches
  kRoll,
  kAddParameter,  // a learned array added to every sample: positions
  kScale,         // a learned factor for each channel: layer scale
  kPrependToken,  // a learned token before the others: class token
  kSelectToken,
  kRotary,
};

std::string_view to_string(LayerKind kind);
std::string_view to_string(Activation activation);

// Height and width; one number means both.
struct Size2 {
  std::int64_t height = 1;
  std::int64_t width = 1;

  constexpr Size2(std::int64_t both) : height(both), width(both) {}  // NOLINT(implicit)
  constexpr Size2(std::int64_t h, std::int64_t w) : height(h), width(w) {}
  constexpr std::int64_t area() const { return height * width; }
  constexpr bool operator==(const Size2&) const = default;
};

// Rows or columns added or taken on each side.
struct Border {
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
};

struct Parameter {
  std::string name;
  std::int64_t count = 0;
  bool trainable = true;  // false: running statistics, changed by the forward pass
};

// One layer. Fields that its kind does not use keep their defaults.
struct Layer {
  LayerKind kind = LayerKind::kInput;
  std::string name;
  std::vector<LayerId> inputs;
  Shape shape;                                  // of the output
  std::vector<ParamId> params;                  // weight first, then bias
  Activation activation = Activation::kLinear;  // fused, or the whole of a kActivation layer
  Size2 kernel = 1;                             // convolutions, pools, up-sampling factor
  Size2 stride = 1;
  std::int64_t groups = 1;  // convolution, group norm
  std::int64_t heads = 1;   // attention
  std::int64_t kv_heads = 1;
  bool causal = false;
  bool bias = true;
  bool affine = true;  // norms: has a trainable scale
  Interpolation interpolation = Interpolation::kNearest;
  int element_bytes = 4;
};

// Elements of one sample: the product of the sizes, or 2^40 + 1 where that is larger; 0 when a
// size is not positive.
std::int64_t num_elements(const Shape& shape);
// "224x224x3".
std::string to_string(const Shape& shape);

}  // namespace regen
