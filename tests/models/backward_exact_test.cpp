#include "regen/models/backward/backward_exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/models/layers/lower.h"
#include "tests/models/graph_probe.h"

namespace regen {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

constexpr Activation kRelu = Activation::kRelu;

Graph build(const LayerGraph& net, const ExactOptions& options = {}) {
  auto graph = exact_graph(net, options);
  if (!graph.ok()) {
    ADD_FAILURE() << graph.error().message;
    std::abort();
  }
  return std::move(graph).value();
}

// 4 features, dense to 3 with relu, dense to 2 with softmax.
LayerGraph perceptron() {
  LayerGraph net("perceptron");
  LayerId x = net.input({4}, {.name = "x"});
  x = net.dense(x, 3, {.activation = kRelu, .name = "d1"});
  net.output(net.dense(x, 2, {.activation = Activation::kSoftmax, .name = "d2"}));
  return net;
}

TEST(BackwardExact, PerceptronByHand) {
  const Graph graph = build(perceptron(), {.batch = 2});
  const GraphProbe probe(graph);
  EXPECT_THAT(probe.op_names(),
              ElementsAre("d1", "d1/relu", "d2", "d2/softmax", "loss", "grad loss",
                          "grad d2/softmax/input", "grad d2/parameters", "grad d2/input",
                          "grad d1/relu/input", "grad d1/parameters"));
  EXPECT_THAT(probe.reads("d1"), ElementsAre("x", "d1/kernel", "d1/bias"));
  EXPECT_THAT(probe.reads("loss"), ElementsAre("d2/softmax", "targets"));
  EXPECT_THAT(probe.reads("grad d2/softmax/input"), ElementsAre("d2/softmax", "grad d2/softmax"));
  EXPECT_THAT(probe.reads("grad d2/parameters"), ElementsAre("d1/relu", "grad d2"));
  EXPECT_THAT(probe.makes("grad d2/parameters"), ElementsAre("grad d2/kernel", "grad d2/bias"));
  EXPECT_THAT(probe.reads("grad d2/input"), ElementsAre("d2/kernel", "grad d2"));
  EXPECT_THAT(probe.reads("grad d1/relu/input"), ElementsAre("d1/relu", "grad d1/relu"));
  EXPECT_THAT(probe.reads("grad d1/parameters"), ElementsAre("x", "grad d1"));
  EXPECT_EQ(probe.bytes("d1/relu"), 2 * 3 * 4);
  EXPECT_EQ(probe.bytes("targets"), 2 * 8);
  EXPECT_EQ(probe.bytes("loss"), 4);
  EXPECT_EQ(graph.kind(probe.tensor("loss")), TensorKind::kOutput);
  EXPECT_EQ(graph.kind(probe.tensor("x")), TensorKind::kInput);
  EXPECT_EQ(graph.kind(probe.tensor("grad d1/kernel")), TensorKind::kOutput);
  EXPECT_EQ(graph.kind(probe.tensor("grad d1")), TensorKind::kGradient);
  // 12 products and 3 biases for each of 2 samples; 3 comparisons; softmax 5 steps.
  EXPECT_EQ(probe.cost("d1"), 30);
  EXPECT_EQ(probe.cost("d1/relu"), 6);
  EXPECT_EQ(probe.cost("d2/softmax"), 20);
  EXPECT_EQ(probe.cost("grad d1/parameters"), 30);
}

TEST(BackwardExact, InPlaceWhereNobodyElseReads) {
  const Graph graph = build(perceptron());
  const GraphProbe probe(graph);
  EXPECT_EQ(probe.overwrites("d1/relu"), "d1");
  EXPECT_EQ(probe.overwrites("grad d1/relu/input"), "grad d1/relu");
  EXPECT_EQ(probe.overwrites("d2/softmax"), "");  // reads a whole row for each element
  EXPECT_EQ(probe.overwrites("grad d2/input"), "");
}

TEST(BackwardExact, InPlaceIsRefusedWhenTheInputIsReadAgain) {
  // gelu's backward reads its input; the relu on the same tensor must not destroy it either.
  LayerGraph net("n");
  const LayerId x = net.dense(net.input({4}), 4, {.name = "d"});
  const LayerId gelu = net.activation(x, Activation::kGelu, "gelu");
  const LayerId relu = net.relu(x, "relu");
  net.output(net.dense(net.add({gelu, relu}, "sum"), 2, {.name = "last"}));
  const Graph graph = build(net);
  const GraphProbe probe(graph);
  EXPECT_THAT(probe.reads("grad gelu/input"), ElementsAre("d", "grad sum"));
  EXPECT_EQ(probe.overwrites("gelu"), "");
  EXPECT_EQ(probe.overwrites("relu"), "");
  // The sum may overwrite gelu's output, which only it reads; relu's is needed by its backward.
  EXPECT_EQ(probe.overwrites("sum"), "gelu");
}

// r feeds the convolution c and the sum s. The gradient of s goes unchanged to both terms, so
// r's gradient is that plus what comes back through c.
TEST(BackwardExact, ResidualGradientsMeet) {
  LayerGraph net("residual");
  LayerId x = net.conv2d(net.input({4, 4, 2}, {.name = "x"}), 2, {.bias = false, .name = "a"});
  const LayerId r = net.relu(x, "r");
  const LayerId c = net.conv2d(r, 2, {.bias = false, .name = "c"});
  const LayerId s = net.add({c, r}, "s");
  net.output(net.dense(net.flatten(s, "f"), 2, {.bias = false, .name = "d"}));
  const Graph graph = build(net);
  const GraphProbe probe(graph);
  EXPECT_THAT(probe.op_names(),
              ElementsAre("a", "r", "c", "s", "f", "d", "loss", "grad loss", "grad d/parameters",
                          "grad d/input", "grad c/parameters", "grad c/input", "grad r/sum1",
                          "grad r/input", "grad a/parameters"));
  EXPECT_THAT(probe.reads("grad c/parameters"), ElementsAre("r", "grad f"));
  EXPECT_THAT(probe.reads("grad r/sum1"), ElementsAre("grad f", "grad r by c"));
  EXPECT_EQ(probe.overwrites("grad r/sum1"), "grad r by c");  // grad f has other readers
  EXPECT_THAT(probe.reads("grad r/input"), ElementsAre("r", "grad r/sum1"));
  EXPECT_EQ(probe.overwrites("s"), "c");
  // The view makes nothing; the dense layer reads what is behind it.
  EXPECT_THAT(probe.makes("f"), ElementsAre());
  EXPECT_THAT(probe.reads("f"), ElementsAre("s"));
  EXPECT_THAT(probe.reads("d"), ElementsAre("s", "d/kernel"));
}

TEST(BackwardExact, BatchNormSavesStatisticsOnce) {
  LayerGraph net("bn");
  LayerId x = net.conv2d(net.input({4, 4, 3}), 8, {.bias = false, .name = "c"});
  x = net.batch_norm(x, {.name = "bn"});
  net.output(net.dense(net.global_average_pool(x, "p"), 2, {.name = "d"}));
  const Graph graph = build(net, {.batch = 16});
  const GraphProbe probe(graph);
  EXPECT_THAT(probe.reads("bn"), ElementsAre("c", "bn/gamma", "bn/beta"));
  EXPECT_THAT(probe.makes("bn"), ElementsAre("bn", "bn/statistics"));
  EXPECT_EQ(probe.bytes("bn/statistics"), 2 * 4 * 8);  // whatever the batch
  EXPECT_THAT(probe.reads("grad bn"),
              UnorderedElementsAre("c", "bn/statistics", "grad bn", "bn/gamma"));
  EXPECT_THAT(probe.makes("grad bn"), ElementsAre("grad c", "grad bn/gamma", "grad bn/beta"));
  // The running statistics are written once, by an op that is never run again; the norm itself
  // may be.
  const OpId update = probe.op("bn/update_statistics");
  EXPECT_EQ(graph.mutates(update).size(), 2u);
  EXPECT_FALSE(graph.recomputable(update));
  EXPECT_TRUE(graph.recomputable(probe.op("bn")));
  EXPECT_EQ(graph.kind(probe.tensor("bn/moving_mean")), TensorKind::kState);
}

TEST(BackwardExact, PoolsAndDropout) {
  LayerGraph net("pools");
  LayerId x = net.conv2d(net.input({8, 8, 3}), 4, {.name = "c"});
  x = net.max_pool2d(x, {.name = "max"});
  x = net.average_pool2d(x, {.name = "average"});
  x = net.dropout(x, "drop");
  net.output(net.dense(net.flatten(x), 2, {.name = "d"}));
  const Graph graph = build(net, {.batch = 3});
  const GraphProbe probe(graph);
  EXPECT_THAT(probe.makes("max"), ElementsAre("max", "max/indices"));
  EXPECT_EQ(probe.bytes("max/indices"), 3 * 4 * 4 * 4 * 8);
  EXPECT_THAT(probe.reads("grad max/input"), ElementsAre("max/indices", "grad max"));
  EXPECT_THAT(probe.reads("grad average/input"), ElementsAre("grad average"));
  EXPECT_TRUE(graph.random(probe.op("drop")));
  EXPECT_EQ(probe.bytes("drop/mask"), 3 * 2 * 2 * 4);
  EXPECT_EQ(probe.overwrites("drop"), "average");
  EXPECT_THAT(probe.reads("grad drop/input"), IsSupersetOf({"drop/mask"}));
}

TEST(BackwardExact, AttentionReadsWhatFlashAttentionSaves) {
  LayerGraph net("attention");
  const LayerId x = net.dense(net.input({5, 8}), 8, {.name = "x"});
  const LayerId kv = net.dense(x, 4, {.name = "kv"});
  const LayerId y = net.attention(x, kv, kv, {.heads = 2, .kv_heads = 1, .name = "a"});
  net.output(net.layer_norm(y, {.name = "ln"}), Loss::kMeanSquare);
  const Graph graph = build(net, {.batch = 3});
  const GraphProbe probe(graph);
  EXPECT_EQ(probe.bytes("a/logsumexp"), 3 * 2 * 5 * 4);
  EXPECT_THAT(probe.reads("grad a"), ElementsAre("x", "kv", "a", "a/logsumexp", "grad a"));
  EXPECT_EQ(probe.makes("grad a").size(), 3u);  // query, key, value
  EXPECT_EQ(probe.bytes("ln/statistics"), 3 * 5 * 2 * 4);
  EXPECT_EQ(probe.bytes("targets"), 3 * 5 * 8 * 4);
  EXPECT_EQ(probe.cost("grad a"), 2.5 * probe.cost("a"));
}

TEST(BackwardExact, TiedWeightsAccumulate) {
  LayerGraph net("tied");
  const LayerId tokens = net.input({6}, {.element_bytes = 8, .name = "tokens"});
  const LayerId e = net.embedding(tokens, 10, 4, "e");
  net.output(net.dense(net.layer_norm(e, {.name = "ln"}), 10,
                       {.bias = false, .tied_to = e, .name = "head"}));
  const Graph graph = build(net, {.batch = 2});
  const GraphProbe probe(graph);
  EXPECT_EQ(probe.bytes("tokens"), 2 * 6 * 8);
  EXPECT_THAT(probe.reads("head"), ElementsAre("ln", "e/table"));
  EXPECT_THAT(probe.reads("grad e/parameters"), ElementsAre("tokens", "grad e"));
  EXPECT_THAT(probe.reads("grad e/table"), ElementsAre("grad e/table/part1", "grad e/table/part2"));
  EXPECT_EQ(graph.kind(probe.tensor("grad e/table")), TensorKind::kOutput);
  EXPECT_EQ(graph.kind(probe.tensor("grad e/table/part1")), TensorKind::kGradient);
  // Logits without a softmax: the loss keeps its own log-probabilities for the backward pass.
  EXPECT_THAT(probe.makes("loss"), ElementsAre("loss", "loss/log_probabilities"));
  EXPECT_EQ(probe.bytes("loss/log_probabilities"), 2 * 6 * 10 * 4);
  EXPECT_THAT(probe.reads("grad loss"), ElementsAre("loss/log_probabilities", "targets"));
}

TEST(BackwardExact, BroadcastTermsAreReduced) {
  LayerGraph net("broadcast");
  const LayerId image = net.conv2d(net.input({4, 4, 3}), 8, {.name = "image"});
  const LayerId gate = net.dense(net.global_average_pool(image, "p"), 8, {.name = "gate"});
  const LayerId scaled = net.multiply({image, gate}, "scaled");
  net.output(net.add({scaled, gate}, "out"), Loss::kMeanSquare);
  const Graph graph = build(net);
  const GraphProbe probe(graph);
  EXPECT_THAT(probe.reads("grad scaled/input"), ElementsAre("gate", "grad out"));
  EXPECT_THAT(probe.reads("grad scaled/input1"), ElementsAre("image", "grad out"));
  EXPECT_EQ(probe.bytes("grad gate by scaled"), 8 * 4);
  EXPECT_EQ(probe.bytes("grad gate by out"), 8 * 4);
  EXPECT_THAT(probe.reads("grad gate/sum1"),
              ElementsAre("grad gate by out", "grad gate by scaled"));
}

TEST(BackwardExact, OptimizersHoldState) {
  const Graph plain = build(perceptron());
  const Graph adam = build(perceptron(), {.optimizer = Optimizer::kAdam});
  const GraphProbe probe(adam);
  const Bytes parameters = 4 * (4 * 3 + 3 + 3 * 2 + 2);
  EXPECT_EQ(adam.fixed_bytes(), plain.fixed_bytes() + 2 * parameters);
  const OpId update = probe.op("update d1/kernel");
  EXPECT_EQ(adam.phase(update), Phase::kUpdate);
  EXPECT_THAT(probe.reads("update d1/kernel"),
              ElementsAre("d1/kernel", "grad d1/kernel", "d1/kernel/adam1", "d1/kernel/adam2"));
  EXPECT_EQ(adam.mutates(update).size(), 3u);
  EXPECT_EQ(adam.kind(probe.tensor("grad d1/kernel")), TensorKind::kGradient);
  const Graph sgd = build(perceptron(), {.optimizer = Optimizer::kSgd});
  EXPECT_EQ(sgd.fixed_bytes(), plain.fixed_bytes());
  EXPECT_EQ(sgd.num_ops(), plain.num_ops() + 4);
}

TEST(BackwardExact, SeparableConvolutionIsTwoOps) {
  LayerGraph net("separable");
  const LayerId x = net.separable_conv2d(
      net.input({6, 6, 3}), 8,
      {.kernel = 3, .stride = 2, .padding = Padding::kSame, .activation = kRelu, .name = "s"});
  net.output(net.dense(net.flatten(x), 2));
  const Graph graph = build(net);
  const GraphProbe probe(graph);
  EXPECT_EQ(probe.bytes("s/depthwise"), 3 * 3 * 3 * 4);
  EXPECT_THAT(probe.reads("s/pointwise"),
              ElementsAre("s/depthwise", "s/pointwise_kernel", "s/bias"));
  EXPECT_THAT(probe.reads("s/relu"), ElementsAre("s/pointwise"));
  EXPECT_EQ(probe.cost("s/depthwise"), 9 * 27);
}

TEST(BackwardExact, NothingToTrainIsRefused) {
  LayerGraph net("frozen");
  net.output(net.relu(net.input({4})));
  const auto graph = exact_graph(net);
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().message, "model 'frozen' has no trainable parameter, expected one");
}

}  // namespace
}  // namespace regen
