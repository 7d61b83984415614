#include "regen/models/layers/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/models/layers/work.h"

namespace regen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> ordered_names(const LayerGraph& net) {
  std::vector<std::string> names;
  for (LayerId id : net.order()) names.push_back(net.layer(id).name);
  return names;
}

std::string message(const LayerGraph& net) {
  const auto error = net.error();
  return error ? error->message : "";
}

TEST(Layers, ConvolutionShapes) {
  LayerGraph net("shapes");
  const LayerId x = net.input({11, 8, 3});
  // Valid: (11-3)/2+1 = 5 and (8-3)/2+1 = 3. Same: 11/2 and 8/2 rounded up.
  EXPECT_THAT(net.shape(net.conv2d(x, 4, {.kernel = 3, .stride = 2})), ElementsAre(5, 3, 4));
  EXPECT_THAT(net.shape(net.conv2d(x, 4, {.kernel = 3, .stride = 2, .padding = Padding::kSame})),
              ElementsAre(6, 4, 4));
  // A dilation of 2 makes the kernel 5 wide: 11-5+1 and 8-5+1.
  EXPECT_THAT(net.shape(net.conv2d(x, 4, {.kernel = 3, .dilation = 2})), ElementsAre(7, 4, 4));
  // Transposed, valid: 11*2 + (5-2) and 8*2 + (5-2).
  EXPECT_THAT(net.shape(net.conv2d_transpose(x, 4, {.kernel = 5, .stride = 2})),
              ElementsAre(25, 19, 4));
  EXPECT_THAT(net.shape(net.max_pool2d(x)), ElementsAre(5, 4, 3));
  EXPECT_THAT(net.shape(net.zero_pad2d(x, {1, 2, 3, 4})), ElementsAre(14, 15, 3));
  EXPECT_THAT(net.shape(net.cropping2d(x, {.top = 1, .right = 2})), ElementsAre(10, 6, 3));
  EXPECT_THAT(net.shape(net.up_sampling2d(x, {2, 3})), ElementsAre(22, 24, 3));
  EXPECT_THAT(net.shape(net.permute(x, {2, 0, 1})), ElementsAre(3, 11, 8));
  EXPECT_THAT(net.shape(net.concat({x, x}, "", 0)), ElementsAre(22, 8, 3));
  EXPECT_EQ(message(net), "model 'shapes': has no output, expected one");
}

TEST(Layers, ParametersByHand) {
  LayerGraph net("parameters");
  LayerId x = net.input({8, 8, 4});
  x = net.conv2d(x, 6, {.kernel = 3, .groups = 2});               // 9*(4/2)*6 + 6 = 114
  x = net.depthwise_conv2d(x, {.kernel = 3, .bias = false});      // 9*6 = 54
  x = net.separable_conv2d(x, 10, {.kernel = 3, .bias = false});  // 9*6 + 6*10 = 114
  x = net.batch_norm(x);                                          // 4*10 = 40
  x = net.batch_norm(x, {.scale = false});                        // 3*10 = 30
  x = net.dense(net.flatten(x), 5);                               // 2*2*10*5 + 5 = 205
  net.output(x);
  ASSERT_EQ(message(net), "");
  EXPECT_EQ(count_parameters(net), 114 + 54 + 114 + 40 + 30 + 205);
}

TEST(Layers, TiedWeightsCountOnce) {
  LayerGraph net("tied");
  const LayerId table = net.embedding(net.input({7}, {.element_bytes = 8}), 100, 16);
  net.output(net.dense(table, 100, {.bias = false, .tied_to = table}));
  ASSERT_EQ(message(net), "");
  EXPECT_EQ(count_parameters(net), 1600);
}

TEST(Layers, AttentionShapes) {
  LayerGraph net("attention");
  const LayerId x = net.input({9, 32});
  const LayerId kv = net.dense(x, 16);
  EXPECT_THAT(net.shape(net.attention(x, kv, kv, {.heads = 4, .kv_heads = 2})), ElementsAre(9, 32));
  EXPECT_THAT(net.shape(net.attention_packed(net.dense(x, 96), {.heads = 4})), ElementsAre(9, 32));
  EXPECT_THAT(net.shape(net.multi_head_attention(x, {.heads = 8, .kv_heads = 2})),
              ElementsAre(9, 32));
  net.attention(x, x, kv, {.heads = 4});
  EXPECT_THAT(message(net), HasSubstr("expected {.., L, heads*d}"));
}

// Two branches of different length from `stem`, joined in the order (short, long):
//
//   stem - long1 - long2 - join - end        depths 4 3 2 1 0
//        \------- short ----/                short has depth 2, visited before long2
TEST(Layers, OrderIsThatOfKeras) {
  LayerGraph net("order");
  const LayerId stem = net.dense(net.input({4}), 4, {.name = "stem"});
  const LayerId unused = net.dense(stem, 4, {.name = "unused"});
  const LayerId long1 = net.relu(stem, "long1");
  const LayerId long2 = net.relu(long1, "long2");
  const LayerId quick = net.relu(stem, "short");
  net.output(net.relu(net.add({quick, long2}, "join"), "end"));
  EXPECT_TRUE(unused.valid());
  EXPECT_THAT(ordered_names(net), ElementsAre("stem", "long1", "short", "long2", "join", "end"));
}

TEST(Layers, FirstMistakeIsReported) {
  LayerGraph net("wrong");
  const LayerId x = net.input({4, 4, 3});
  const LayerId bad = net.conv2d(x, 8, {.kernel = 5, .name = "too_big"});
  net.output(net.reshape(bad, {17}));
  EXPECT_EQ(message(net),
            "model 'wrong': layer 'too_big' has the output shape 0x0x8, expected sizes of at "
            "least 1");
  EXPECT_TRUE(net.order().empty());
}

TEST(Layers, MistakesNameWhatIsExpected) {
  const auto mistake = [](auto build) {
    LayerGraph net("m");
    build(net, net.input({4, 4, 3}, {.name = "in"}));
    return message(net);
  };
  using L = LayerGraph&;
  EXPECT_THAT(mistake([](L n, LayerId x) {
                n.add({x, n.conv2d(x, 5)});
              }),
              HasSubstr("does not broadcast to 4x4x5"));
  EXPECT_THAT(mistake([](L n, LayerId x) {
                n.concat({x, n.max_pool2d(x)});
              }),
              HasSubstr("expected equal sizes off axis -1"));
  EXPECT_THAT(mistake([](L n, LayerId x) {
                n.reshape(x, {7, -1});
              }),
              HasSubstr("expected as many elements"));
  EXPECT_THAT(mistake([](L n, LayerId x) { n.group_norm(x, 2); }), HasSubstr("2 groups"));
  EXPECT_THAT(mistake([](L n, LayerId x) { n.dense(x, std::int64_t{1} << 50); }),
              HasSubstr("out of range, expected 1 to 2^40"));
  EXPECT_THAT(mistake([](L n, LayerId x) { n.up_sampling2d(x, 1 << 20); }),
              HasSubstr("expected at most 2^40 elements"));
  EXPECT_THAT(mistake([](L n, LayerId x) { n.output(x); }), HasSubstr("the output is an input"));
  EXPECT_THAT(mistake([](L n, LayerId) { n.relu(LayerId()); }), HasSubstr("does not exist"));
  EXPECT_THAT(mistake([](L n, LayerId x) {
                n.permute(x, {0, 1, 1});
              }),
              HasSubstr("not a permutation"));
  EXPECT_THAT(mistake([](L n, LayerId x) { n.matmul(x, x); }), HasSubstr("{..,m,k}"));
  EXPECT_THAT(mistake([](L n, LayerId x) { n.embedding(x, 0, 4); }), HasSubstr("vocabulary 0"));
}

}  // namespace
}  // namespace regen
