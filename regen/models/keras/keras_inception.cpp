// InceptionV3 (Szegedy et al., 2015) as keras.applications has it: batch norms without scale.
#include "regen/models/keras/keras.h"

namespace regen {
namespace {

// Layers are named as Keras numbers them: conv2d, conv2d_1, ...
class Inception {
 public:
  LayerGraph build() && {
    stem();
    mixed_35(32, "mixed0");
    mixed_35(64, "mixed1");
    mixed_35(64, "mixed2");
    shrink_to_17();
    mixed_17(128, "mixed4");
    mixed_17(160, "mixed5");
    mixed_17(160, "mixed6");
    mixed_17(192, "mixed7");
    shrink_to_8();
    mixed_8("mixed9_0", "mixed9");
    mixed_8("mixed9_1", "mixed10");
    x_ = net_.global_average_pool(x_, "avg_pool");
    net_.output(net_.dense(x_, 1000, {.activation = Activation::kSoftmax, .name = "predictions"}));
    return std::move(net_);
  }

 private:
  LayerId conv(LayerId x, std::int64_t filters, Size2 kernel, std::int64_t stride = 1,
               Padding padding = Padding::kSame) {
    x = net_.conv2d(x, filters,
                    {.kernel = kernel, .stride = stride, .padding = padding, .bias = false});
    return net_.relu(net_.batch_norm(x, {.scale = false}));
  }
  LayerId conv_valid(LayerId x, std::int64_t filters, std::int64_t kernel, std::int64_t stride) {
    return conv(x, filters, kernel, stride, Padding::kValid);
  }
  LayerId pool(LayerId x) { return net_.max_pool2d(x, {.window = 3, .stride = 2}); }
  LayerId pool_branch(std::int64_t filters) {
    const LayerId pooled =
        net_.average_pool2d(x_, {.window = 3, .stride = 1, .padding = Padding::kSame});
    return conv(pooled, filters, 1);
  }

  void stem() {
    x_ = conv_valid(net_.input({299, 299, 3}), 32, 3, 2);
    x_ = conv_valid(x_, 32, 3, 1);
    x_ = pool(conv(x_, 64, 3));
    x_ = conv_valid(x_, 80, 1, 1);
    x_ = pool(conv_valid(x_, 192, 3, 1));
  }

  void mixed_35(std::int64_t pool_filters, const char* name) {
    const LayerId one = conv(x_, 64, 1);
    const LayerId five = conv(conv(x_, 48, 1), 64, 5);
    const LayerId three = conv(conv(conv(x_, 64, 1), 96, 3), 96, 3);
    const LayerId pooled = pool_branch(pool_filters);
    x_ = net_.concat({one, five, three, pooled}, name);
  }

  void shrink_to_17() {
    const LayerId single = conv_valid(x_, 384, 3, 2);
    const LayerId twice = conv_valid(conv(conv(x_, 64, 1), 96, 3), 96, 3, 2);
    x_ = net_.concat({single, twice, pool(x_)}, "mixed3");
  }

  void mixed_17(std::int64_t width, const char* name) {
    const LayerId one = conv(x_, 192, 1);
    const LayerId seven = conv(conv(conv(x_, width, 1), width, {1, 7}), 192, {7, 1});
    LayerId twice = conv(conv(x_, width, 1), width, {7, 1});
    twice = conv(conv(conv(twice, width, {1, 7}), width, {7, 1}), 192, {1, 7});
    const LayerId pooled = pool_branch(192);
    x_ = net_.concat({one, seven, twice, pooled}, name);
  }

  void shrink_to_8() {
    const LayerId three = conv_valid(conv(x_, 192, 1), 320, 3, 2);
    LayerId seven = conv(conv(conv(x_, 192, 1), 192, {1, 7}), 192, {7, 1});
    seven = conv_valid(seven, 192, 3, 2);
    x_ = net_.concat({three, seven, pool(x_)}, "mixed8");
  }

  void mixed_8(const char* inner_name, const char* name) {
    const LayerId one = conv(x_, 320, 1);
    LayerId three = conv(x_, 384, 1);
    const LayerId three_row = conv(three, 384, {1, 3});
    const LayerId three_column = conv(three, 384, {3, 1});
    three = net_.concat({three_row, three_column}, inner_name);
    LayerId twice = conv(conv(x_, 448, 1), 384, 3);
    const LayerId twice_row = conv(twice, 384, {1, 3});
    const LayerId twice_column = conv(twice, 384, {3, 1});
    twice = net_.concat({twice_row, twice_column});
    const LayerId pooled = pool_branch(192);
    x_ = net_.concat({one, three, twice, pooled}, name);
  }

  LayerGraph net_{"InceptionV3"};
  LayerId x_;
};

}  // namespace

LayerGraph build_inception_v3(int) {
  return Inception().build();
}

}  // namespace regen
