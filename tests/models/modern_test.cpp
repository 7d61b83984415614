#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "regen/models/layers/work.h"
#include "regen/models/zoo.h"

namespace regen {
namespace {

LayerGraph layers_of(const std::string& name) {
  auto net = zoo_layers(name);
  EXPECT_TRUE(net.ok()) << net.error().message;
  return net.ok() ? *std::move(net) : LayerGraph(name);
}

std::int64_t trainable_parameters(const LayerGraph& net) {
  std::set<std::size_t> seen;
  std::int64_t count = 0;
  for (LayerId id : net.order()) {
    for (ParamId p : net.layer(id).params) {
      if (net.param(p).trainable && seen.insert(p.index()).second) count += net.param(p).count;
    }
  }
  return count;
}

std::size_t count_kind(const LayerGraph& net, LayerKind kind) {
  const auto order = net.order();
  return static_cast<std::size_t>(std::count_if(
      order.begin(), order.end(), [&](LayerId id) { return net.layer(id).kind == kind; }));
}

// Multiply-accumulates of layers with weights and of the two products of attention, a causal mask
// not taken into account: what torchvision and fvcore count.
double macs(const LayerGraph& net) {
  double sum = 0;
  for (LayerId id : net.order()) {
    const Layer& layer = net.layer(id);
    sum += weight_flops(net, id);
    if (layer.kind != LayerKind::kAttention) continue;
    const Shape& keys = net.shape(layer.inputs[layer.inputs.size() == 1 ? 0 : 1]);
    sum += 2.0 * static_cast<double>(num_elements(layer.shape)) *
           static_cast<double>(keys[keys.size() - 2]);
  }
  return sum;
}

struct Published {
  const char* name;
  std::int64_t layers;      // ours, counted by hand below
  std::int64_t parameters;  // without running statistics
  double gigamacs;          // 0: none is commonly quoted
};

// Layers: those outside the blocks, then blocks times layers of one.
constexpr Published kPublished[] = {
    {"vit_b_16", 4 + 12 * 10 + 3, 86'567'656, 17.56},
    // A block has 14 layers with stochastic depth; 5 of the 12 also shift and shift back.
    {"swin_t", 2 + 12 * 14 - 2 + 5 * 2 + 3 * 3 + 3, 28'288'354, 4.49},
    {"convnext_t", 2 + 18 * 8 - 1 + 3 * 2 + 3, 28'589'128, 4.46},
    // 16 blocks of 14 layers; the first lacks the 3 of the expansion; 9 have a residual.
    {"efficientnet_b0", 3 + 16 * 14 - 3 + 9 * 2 + 6, 5'288'548, 0.386},
    {"bert_base", 6 + 12 * 14 + 3, 109'482'240, 0},
    {"bert_large", 6 + 24 * 14 + 3, 335'141'888, 0},
    {"gpt2_small", 3 + 12 * 12 + 2, 124'439'808, 0},
    {"gpt2_medium", 3 + 24 * 12 + 2, 354'823'168, 0},
    {"gpt2_large", 3 + 36 * 12 + 2, 774'030'080, 0},
    {"gpt2_xl", 3 + 48 * 12 + 2, 1'557'611'200, 0},
    {"llama_1b", 1 + 22 * 16 + 2, 1'100'048'384, 0},
    // 22 residual blocks of 10 layers, 14 with a 1x1 on the skip; 16 transformers of 27; 3 each
    // of down (1), up (2); 12 concatenations; 3 for the time, 1 in and 3 out.
    {"diffusion_unet", 22 * 10 + 14 + 16 * 27 + 3 * 3 + 12 + 7, 859'520'964, 0},
};

class Modern : public ::testing::TestWithParam<Published> {};

TEST_P(Modern, HasPublishedSize) {
  const LayerGraph net = layers_of(GetParam().name);
  EXPECT_EQ(trainable_parameters(net), GetParam().parameters);
  EXPECT_EQ(net.order().size(), static_cast<std::size_t>(GetParam().layers));
  const double gigamacs = macs(net) / 1e9;
  RecordProperty("gigamacs", std::to_string(gigamacs));
  if (GetParam().gigamacs > 0) {
    EXPECT_NEAR(gigamacs, GetParam().gigamacs, 0.01 * GetParam().gigamacs);
  }
}

TEST_P(Modern, HasOneNameForEachLayer) {
  const LayerGraph net = layers_of(GetParam().name);
  std::set<std::string> names;
  for (LayerId id : net.order()) {
    EXPECT_TRUE(names.insert(net.layer(id).name).second) << net.layer(id).name;
  }
}

// Whether a tensor has the batch in its shape. Parameters have not, nor have their gradients, nor
// what batch norm saves; those come only with the exact backward.
bool must_grow(const Graph& graph, TensorId t, BackwardStyle style) {
  if (graph.kind(t) == TensorKind::kParam || graph.kind(t) == TensorKind::kState) return false;
  if (style == BackwardStyle::kCheckmate || graph.fixed(t)) return true;
  const OpId maker = graph.producer(t);
  return graph.phase(maker) == Phase::kForward && graph.type(maker) != "batch_norm";
}

void expect_linear_in_batch(const Graph& one, const Graph& two, BackwardStyle style) {
  ASSERT_EQ(one.num_ops(), two.num_ops());
  ASSERT_EQ(one.num_tensors(), two.num_tensors());
  for (TensorId t : one.tensors()) {
    const Bytes bytes = one.bytes(t);
    if (must_grow(one, t, style)) {
      EXPECT_EQ(two.bytes(t), 2 * bytes) << one.name(t);
    } else if (one.fixed(t)) {
      EXPECT_EQ(two.bytes(t), bytes) << one.name(t);
    } else {
      EXPECT_TRUE(two.bytes(t) == 2 * bytes || two.bytes(t) == bytes) << one.name(t);
    }
  }
}

void expect_builds(const std::string& name, BackwardStyle style) {
  const auto one = zoo_graph(name, {.batch = 1, .backward = style});
  const auto two = zoo_graph(name, {.batch = 2, .backward = style});
  ASSERT_TRUE(one.ok()) << one.error().message;
  ASSERT_TRUE(two.ok()) << two.error().message;
  expect_linear_in_batch(*one, *two, style);
}

TEST_P(Modern, BuildsWithCheckmateBackward) {
  expect_builds(GetParam().name, BackwardStyle::kCheckmate);
  const auto graph = zoo_graph(GetParam().name);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->num_ops(), static_cast<std::size_t>(2 * GetParam().layers + 1));
}

TEST_P(Modern, BuildsWithExactBackward) {
  expect_builds(GetParam().name, BackwardStyle::kExact);
  const auto graph = zoo_graph(GetParam().name, {.backward = BackwardStyle::kExact});
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  // Every trainable parameter gets a gradient, which nothing reads.
  Bytes gradients = 0;
  for (TensorId t : graph->tensors()) {
    const bool backward = !graph->fixed(t) && graph->phase(graph->producer(t)) == Phase::kBackward;
    if (backward && graph->kind(t) == TensorKind::kOutput) gradients += graph->bytes(t);
  }
  EXPECT_EQ(gradients, 4 * GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(Models, Modern, ::testing::ValuesIn(kPublished),
                         [](const auto& model) { return std::string(model.param.name); });

TEST(ModernModels, TableIsCoveredByTheTests) {
  std::set<std::string> tested = {"gpt2", "llama"};  // second names, below
  for (const Published& model : kPublished) tested.insert(model.name);
  for (const ZooEntry& entry : modern_models()) {
    EXPECT_EQ(tested.count(entry.name), 1u) << entry.name;
    EXPECT_STREQ(entry.family, "modern");
  }
  EXPECT_EQ(modern_models().size(), tested.size());
}

TEST(ModernModels, SecondNamesMeanTheSame) {
  const std::pair<const char*, const char*> names[] = {{"gpt2", "gpt2_small"},
                                                       {"llama", "llama_1b"}};
  for (const auto& [second, first] : names) {
    const auto a = zoo_graph(second);
    const auto b = zoo_graph(first);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(*a, *b) << second;
  }
}

// Keras reports 5,330,571 for EfficientNetB0, of which its Normalization layer has 7.
TEST(ModernModels, EfficientNetHasRunningStatistics) {
  const LayerGraph net = layers_of("efficientnet_b0");
  EXPECT_EQ(count_parameters(net), 5'330'571 - 7);
  EXPECT_EQ(count_parameters(net) - trainable_parameters(net), 42'016);
}

TEST(ModernModels, OthersTrainEveryParameter) {
  for (const Published& model : kPublished) {
    if (std::string(model.name) == "efficientnet_b0") continue;
    EXPECT_EQ(count_parameters(layers_of(model.name)), model.parameters) << model.name;
  }
}

TEST(ModernModels, Gpt2SharesItsTableWithTheOutput) {
  const LayerGraph net = layers_of("gpt2_small");
  const Layer& head = net.layer(net.output_layer());
  ASSERT_EQ(head.params.size(), 1u);  // no bias
  EXPECT_EQ(net.param(head.params[0]).name, "wte/table");
  EXPECT_EQ(head.shape, (Shape{1024, 50257}));
}

TEST(ModernModels, LlamaCountFollowsFromItsShape) {
  constexpr std::int64_t kLayers = 22, kWidth = 2048, kHidden = 5632, kVocabulary = 32000;
  constexpr std::int64_t kKeys = kWidth / 32 * 4;  // 4 key heads for 32 query heads
  constexpr std::int64_t kBlock =
      2 * kWidth * kWidth + 2 * kWidth * kKeys + 3 * kWidth * kHidden + 2 * kWidth;
  constexpr std::int64_t kCount = 2 * kVocabulary * kWidth + kLayers * kBlock + kWidth;
  static_assert(kCount == 1'100'048'384);
  EXPECT_EQ(count_parameters(layers_of("llama")), kCount);
}

// The quoted 339 G do not have the products of attention in them; with those it is 402 G.
TEST(ModernModels, UnetDoesTheQuotedWork) {
  const LayerGraph net = layers_of("diffusion_unet");
  double weights = 0;
  for (LayerId id : net.order()) weights += weight_flops(net, id);
  EXPECT_NEAR(weights / 1e9, 339, 1);
  EXPECT_NEAR(macs(net) / 1e9, 402, 1);
}

TEST(ModernModels, UnetAttendsToTheText) {
  const LayerGraph net = layers_of("diffusion_unet");
  EXPECT_EQ(count_kind(net, LayerKind::kAttention), 32u);
  std::size_t cross = 0;
  for (LayerId id : net.order()) {
    const Layer& layer = net.layer(id);
    if (layer.kind != LayerKind::kAttention) continue;
    cross += net.shape(layer.inputs[1])[0] == 77 ? 1 : 0;
  }
  EXPECT_EQ(cross, 16u);
  EXPECT_EQ(net.shape(net.output_layer()), (Shape{64, 64, 4}));
  EXPECT_EQ(net.loss(), Loss::kMeanSquare);
}

// 169 offsets for each head of each block: 3, 6, 12 and 24 heads.
TEST(ModernModels, SwinHasPositionTables) {
  const LayerGraph net = layers_of("swin_t");
  std::int64_t count = 0;
  for (LayerId id : net.order()) {
    const Layer& layer = net.layer(id);
    if (layer.kind != LayerKind::kAttention) continue;
    ASSERT_EQ(layer.params.size(), 1u);
    count += net.param(layer.params[0]).count;
  }
  EXPECT_EQ(count, 169 * (2 * 3 + 2 * 6 + 6 * 12 + 2 * 24));
  EXPECT_EQ(count_kind(net, LayerKind::kRoll), 10u);
}

}  // namespace
}  // namespace regen
