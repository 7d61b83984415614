#include "regen/models/layers/work.h"

#include <gtest/gtest.h>

namespace regen {
namespace {

class Work : public ::testing::Test {
 protected:
  double artifact(LayerId id) const { return forward_flops(net_, id, FlopRules::kArtifact); }
  double correct(LayerId id) const { return forward_flops(net_, id, FlopRules::kCorrect); }

  LayerGraph net_{"work"};
  LayerId image_ = net_.input({6, 6, 4});  // 144 elements
};

TEST_F(Work, Convolutions) {
  // Output 4x4x8 = 128 elements, 9*4 multiplications each; the correct rule adds bias and relu.
  const LayerId conv = net_.conv2d(image_, 8, {.kernel = 3, .activation = Activation::kRelu});
  EXPECT_EQ(artifact(conv), 36 * 128);
  EXPECT_EQ(correct(conv), 36 * 128 + 128 + 128);
  // Output 4x4x4 = 64.
  const LayerId depthwise = net_.depthwise_conv2d(image_, {.kernel = 3, .bias = false});
  EXPECT_EQ(artifact(depthwise), 9 * 64);
  EXPECT_EQ(correct(depthwise), 9 * 64);
  // 9*64 for the depthwise half, 4*128 for the 1x1 half; the artifact has no rule.
  const LayerId separable = net_.separable_conv2d(image_, 8, {.kernel = 3, .bias = false});
  EXPECT_EQ(correct(separable), 9 * 64 + 4 * 128);
  EXPECT_EQ(artifact(separable), correct(separable));
  // Output 12x12x8 = 1152; the artifact leaves the kernel out. Correct: each of the 144 inputs
  // meets 2*2*8 weights.
  const LayerId transposed =
      net_.conv2d_transpose(image_, 8, {.kernel = 2, .stride = 2, .bias = false});
  EXPECT_EQ(artifact(transposed), 4 * 1152);
  EXPECT_EQ(correct(transposed), 144 * 32);
}

TEST_F(Work, Elementwise) {
  EXPECT_EQ(artifact(net_.relu(image_)), 144);
  const LayerId softmax = net_.activation(image_, Activation::kSoftmax);
  EXPECT_EQ(artifact(softmax), 144);
  EXPECT_EQ(correct(softmax), 5 * 144);
  EXPECT_EQ(artifact(net_.batch_norm(image_)), 4 * 144);
  EXPECT_EQ(correct(net_.batch_norm(image_)), 7 * 144);
  EXPECT_EQ(artifact(net_.add({image_, image_, image_})), 3 * 144);
  EXPECT_EQ(correct(net_.add({image_, image_, image_})), 2 * 144);
  EXPECT_EQ(artifact(net_.max_pool2d(image_)), 0);
  EXPECT_EQ(correct(net_.max_pool2d(image_)), 4 * 36);
  EXPECT_EQ(artifact(net_.up_sampling2d(image_, 2)), 576);
  EXPECT_EQ(artifact(net_.up_sampling2d(image_, 2, Interpolation::kBilinear)), 5 * 576);
  EXPECT_EQ(artifact(net_.resize(image_, 12)), 5 * 576);
  EXPECT_EQ(artifact(net_.zero_pad2d(image_, {1, 1, 1, 1})), 0);
  EXPECT_EQ(correct(net_.zero_pad2d(image_, {1, 1, 1, 1})), 8 * 8 * 4);
  EXPECT_EQ(correct(net_.flatten(image_)), 0);
}

TEST_F(Work, DenseRows) {
  // 36 rows of 4 features to 5: the artifact counts one row.
  const LayerId dense = net_.dense(image_, 5, {.bias = false});
  EXPECT_EQ(artifact(dense), 20);
  EXPECT_EQ(correct(dense), 36 * 20);
}

TEST_F(Work, Attention) {
  // 2 heads of size 3, 5 tokens: 5*5*2 pairs, each 2*3 products and 5 softmax steps.
  const LayerId tokens = net_.input({5, 6});
  EXPECT_EQ(correct(net_.attention(tokens, tokens, tokens, {.heads = 2})), 50 * 11);
  // Causal: 15 of 25 pairs.
  EXPECT_EQ(correct(net_.attention(tokens, tokens, tokens, {.heads = 2, .causal = true})), 30 * 11);
}

}  // namespace
}  // namespace regen
