// NASNet-A (Zoph et al., 2017) as keras.applications of TensorFlow 2.0 has it. A cell reads the
// outputs of the two cells before it, x and p.
#include <utility>

#include "regen/models/keras/keras.h"

namespace regen {
namespace {

class NasNet {
 public:
  struct Size {
    const char* name;
    std::int64_t image;
    std::int64_t penultimate_filters;
    int blocks;
    std::int64_t stem_filters;
    bool skip_reduction;
  };

  explicit NasNet(const Size& size) : size_(size), net_(size.name) {}

  LayerGraph build() && {
    const std::int64_t filters = size_.penultimate_filters / 24;
    x_ = net_.conv2d(net_.input({size_.image, size_.image, 3}), size_.stem_filters,
                     {.kernel = 3, .stride = 2, .bias = false, .name = "stem_conv1"});
    x_ = net_.batch_norm(x_, {.name = "stem_bn1"});
    reduce(filters / 4, "stem_1");
    reduce(filters / 2, "stem_2");
    const int n = size_.blocks;
    for (int i = 0; i < n; ++i) normal(filters, std::to_string(i));
    shrink(2 * filters, "reduce_" + std::to_string(n));
    for (int i = 0; i < n; ++i) normal(2 * filters, std::to_string(n + i + 1));
    shrink(4 * filters, "reduce_" + std::to_string(2 * n));
    for (int i = 0; i < n; ++i) normal(4 * filters, std::to_string(2 * n + i + 1));
    x_ = net_.global_average_pool(net_.relu(x_));
    net_.output(net_.dense(x_, 1000, {.activation = Activation::kSoftmax, .name = "predictions"}));
    return std::move(net_);
  }

 private:
  // Padding of an even size is one-sided, so that strided windows meet the border as in Keras.
  Border strided_padding(LayerId x, std::int64_t kernel) const {
    const std::int64_t half = kernel / 2;
    const std::int64_t top = half - (1 - net_.shape(x)[0] % 2);
    const std::int64_t left = half - (1 - net_.shape(x)[1] % 2);
    return {.top = top, .bottom = half, .left = left, .right = half};
  }

  LayerId conv_bn(LayerId x, std::int64_t filters, const std::string& conv, const std::string& bn) {
    return net_.batch_norm(net_.conv2d(x, filters, {.bias = false, .name = conv}), {.name = bn});
  }

  LayerId separable(LayerId x, std::int64_t filters, std::int64_t kernel, std::int64_t stride,
                    const std::string& id) {
    x = net_.relu(x);
    if (stride == 2) {
      x = net_.zero_pad2d(x, strided_padding(x, kernel), "separable_conv_1_pad_" + id);
    }
    x = net_.separable_conv2d(x, filters,
                              {.kernel = kernel,
                               .stride = stride,
                               .padding = stride == 2 ? Padding::kValid : Padding::kSame,
                               .bias = false,
                               .name = "separable_conv_1_" + id});
    x = net_.relu(net_.batch_norm(x, {.name = "separable_conv_1_bn_" + id}));
    x = net_.separable_conv2d(x, filters,
                              {.kernel = kernel,
                               .padding = Padding::kSame,
                               .bias = false,
                               .name = "separable_conv_2_" + id});
    return net_.batch_norm(x, {.name = "separable_conv_2_bn_" + id});
  }

  // Brings p to the size of x and to this many filters.
  LayerId adjust(std::int64_t filters, const std::string& id) {
    if (!p_.valid()) return x_;
    if (net_.shape(p_)[1] != net_.shape(x_)[1]) return adjust_reduction(filters, id);
    if (net_.channels(p_) == filters) return p_;
    return conv_bn(net_.relu(p_), filters, "adjust_conv_projection_" + id, "adjust_bn_" + id);
  }

  // Two halves, from the even and from the odd places.
  LayerId adjust_reduction(std::int64_t filters, const std::string& id) {
    const LayerId p = net_.relu(p_, "adjust_relu_1_" + id);
    LayerId even =
        net_.average_pool2d(p, {.window = 1, .stride = 2, .name = "adjust_avg_pool_1_" + id});
    even = net_.conv2d(even, filters / 2, {.bias = false, .name = "adjust_conv_1_" + id});
    LayerId odd = net_.zero_pad2d(p, {.bottom = 1, .right = 1});
    odd = net_.cropping2d(odd, {.top = 1, .left = 1});
    odd = net_.average_pool2d(odd, {.window = 1, .stride = 2, .name = "adjust_avg_pool_2_" + id});
    odd = net_.conv2d(odd, filters / 2, {.bias = false, .name = "adjust_conv_2_" + id});
    return net_.batch_norm(net_.concat({even, odd}), {.name = "adjust_bn_" + id});
  }

  LayerId average(LayerId x, std::int64_t stride, Padding padding, const std::string& name) {
    return net_.average_pool2d(x,
                               {.window = 3, .stride = stride, .padding = padding, .name = name});
  }

  void normal(std::int64_t filters, const std::string& id) {
    const LayerId p = adjust(filters, id);
    const LayerId h = conv_bn(net_.relu(x_), filters, "normal_conv_1_" + id, "normal_bn_1_" + id);
    const LayerId left1 = separable(h, filters, 5, 1, "normal_left1_" + id);
    const LayerId right1 = separable(p, filters, 3, 1, "normal_right1_" + id);
    const LayerId x1 = net_.add({left1, right1}, "normal_add_1_" + id);
    const LayerId left2 = separable(p, filters, 5, 1, "normal_left2_" + id);
    const LayerId right2 = separable(p, filters, 3, 1, "normal_right2_" + id);
    const LayerId x2 = net_.add({left2, right2}, "normal_add_2_" + id);
    const LayerId left3 = average(h, 1, Padding::kSame, "normal_left3_" + id);
    const LayerId x3 = net_.add({left3, p}, "normal_add_3_" + id);
    const LayerId left4 = average(p, 1, Padding::kSame, "normal_left4_" + id);
    const LayerId right4 = average(p, 1, Padding::kSame, "normal_right4_" + id);
    const LayerId x4 = net_.add({left4, right4}, "normal_add_4_" + id);
    const LayerId left5 = separable(h, filters, 3, 1, "normal_left5_" + id);
    const LayerId x5 = net_.add({left5, h}, "normal_add_5_" + id);
    p_ = std::exchange(x_, net_.concat({p, x1, x2, x3, x4, x5}, "normal_concat_" + id));
  }

  void reduce(std::int64_t filters, const std::string& id) {
    const LayerId p = adjust(filters, id);
    const LayerId h =
        conv_bn(net_.relu(x_), filters, "reduction_conv_1_" + id, "reduction_bn_1_" + id);
    const LayerId h3 = net_.zero_pad2d(h, strided_padding(h, 3), "reduction_pad_1_" + id);
    const LayerId left1 = separable(h, filters, 5, 2, "reduction_left1_" + id);
    const LayerId right1 = separable(p, filters, 7, 2, "reduction_right1_" + id);
    const LayerId x1 = net_.add({left1, right1}, "reduction_add_1_" + id);
    const LayerId left2 =
        net_.max_pool2d(h3, {.window = 3, .stride = 2, .name = "reduction_left2_" + id});
    const LayerId right2 = separable(p, filters, 7, 2, "reduction_right2_" + id);
    const LayerId x2 = net_.add({left2, right2}, "reduction_add_2_" + id);
    const LayerId left3 = average(h3, 2, Padding::kValid, "reduction_left3_" + id);
    const LayerId right3 = separable(p, filters, 5, 2, "reduction_right3_" + id);
    const LayerId x3 = net_.add({left3, right3}, "reduction_add3_" + id);
    const LayerId left4 = average(x1, 1, Padding::kSame, "reduction_left4_" + id);
    const LayerId x4 = net_.add({x2, left4});
    const LayerId left5 = separable(x1, filters, 3, 1, "reduction_left4_" + id);
    const LayerId right5 =
        net_.max_pool2d(h3, {.window = 3, .stride = 2, .name = "reduction_right5_" + id});
    const LayerId x5 = net_.add({left5, right5}, "reduction_add4_" + id);
    p_ = std::exchange(x_, net_.concat({x2, x3, x4, x5}, "reduction_concat_" + id));
  }

  // A reduction after which NASNetLarge goes on with the p from before it.
  void shrink(std::int64_t filters, const std::string& id) {
    const LayerId before = p_;
    reduce(filters, id);
    if (size_.skip_reduction) p_ = before;
  }

  Size size_;
  LayerGraph net_;
  LayerId x_;
  LayerId p_;
};

}  // namespace

LayerGraph build_nasnet(int variant) {
  if (variant == 0) return NasNet({"NASNetMobile", 224, 1056, 4, 32, false}).build();
  return NasNet({"NASNetLarge", 331, 4032, 6, 96, true}).build();
}

}  // namespace regen
