#include "regen/models/backward/backward_checkmate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/models/zoo.h"
#include "tests/models/graph_probe.h"

namespace regen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// a (2x3 dense) feeds b and c, which d adds.
LayerGraph diamond() {
  LayerGraph net("diamond");
  const LayerId a = net.dense(net.input({2}), 3, {.name = "a"});
  const LayerId b = net.relu(a, "b");
  const LayerId c = net.dropout(a, "c");
  net.output(net.add({b, c}, "d"));
  return net;
}

TEST(BackwardCheckmate, DiamondByHand) {
  const auto graph = checkmate_graph(diamond(), 5);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  const GraphProbe probe(*graph);
  EXPECT_THAT(probe.op_names(),
              ElementsAre("a", "b", "c", "d", "loss", "grad d", "grad c", "grad b", "grad a"));
  for (OpId op : graph->ops()) {
    EXPECT_EQ(graph->outputs(op)[0].index(), op.index());
  }
  EXPECT_THAT(probe.reads("a"), ElementsAre());
  EXPECT_THAT(probe.reads("d"), ElementsAre("b", "c"));
  EXPECT_THAT(probe.reads("loss"), ElementsAre("d"));
  EXPECT_THAT(probe.reads("grad d"), ElementsAre("d", "loss"));
  EXPECT_THAT(probe.reads("grad c"), ElementsAre("c", "d", "grad d"));
  EXPECT_THAT(probe.reads("grad a"), ElementsAre("a", "b", "c", "grad b", "grad c"));
  // Forward 4 edges, loss 1, gradients 2 + 3 + 3 + 5.
  EXPECT_EQ(graph->num_edges(), 18u);
}

TEST(BackwardCheckmate, SizesAndCosts) {
  const auto graph = checkmate_graph(diamond(), 5);
  ASSERT_TRUE(graph.ok());
  const GraphProbe probe(*graph);
  EXPECT_EQ(probe.bytes("a"), 5 * 3 * 4);
  EXPECT_EQ(probe.bytes("grad a"), 5 * 3 * 4);
  EXPECT_EQ(probe.bytes("loss"), 4 * 5);
  EXPECT_EQ(probe.cost("a"), 5 * 6);
  EXPECT_EQ(probe.cost("grad a"), 2 * 5 * 6);
  EXPECT_EQ(probe.cost("d"), 5 * 6);  // both inputs
  EXPECT_EQ(probe.cost("loss"), 0);
  // 2*3 + 3 parameters, and their gradients.
  EXPECT_EQ(graph->fixed_bytes(), 2 * 4 * 9);
  EXPECT_EQ(graph->kind(probe.tensor("parameters")), TensorKind::kParam);
  EXPECT_EQ(graph->kind(probe.tensor("parameter gradients")), TensorKind::kState);
  EXPECT_TRUE(graph->random(probe.op("c")));
  // d reads two tensors of 60 bytes and writes one; a also reads its input of 40 and 36 bytes
  // of parameters.
  EXPECT_EQ(graph->traffic(graph->default_variant(probe.op("d"))), 180);
  EXPECT_EQ(graph->traffic(graph->default_variant(probe.op("a"))), 60 + 40 + 36);
}

TEST(BackwardCheckmate, Phases) {
  const auto graph = checkmate_graph(diamond(), 1);
  ASSERT_TRUE(graph.ok());
  for (OpId op : graph->ops()) {
    const Phase expected = op.index() < 4    ? Phase::kForward
                           : op.index() == 4 ? Phase::kLoss
                                             : Phase::kBackward;
    EXPECT_EQ(graph->phase(op), expected);
  }
  EXPECT_EQ(graph->cost_unit(), CostUnit::kFlop);
}

TEST(BackwardCheckmate, UnitChain) {
  const auto graph = unit_chain_graph(3);
  ASSERT_TRUE(graph.ok());
  const GraphProbe probe(*graph);
  EXPECT_THAT(probe.op_names(),
              ElementsAre("node 0", "node 1", "node 2", "loss", "grad 2", "grad 1", "grad 0"));
  EXPECT_THAT(probe.reads("loss"), ElementsAre("node 2"));
  EXPECT_THAT(probe.reads("grad 2"), ElementsAre("loss", "node 2"));
  EXPECT_THAT(probe.reads("grad 0"), ElementsAre("grad 1", "node 0"));
  EXPECT_EQ(graph->num_edges(), 9u);  // 2N in the chain, N back
  EXPECT_EQ(graph->base_cost(), 7);
  EXPECT_EQ(graph->fixed_bytes(), 0);
  for (TensorId t : graph->tensors()) EXPECT_EQ(graph->bytes(t), 1);
}

TEST(BackwardCheckmate, RefusesBatchOutOfRange) {
  const auto graph = checkmate_graph(diamond(), 0);
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.error().message, HasSubstr("batch 0 is out of range"));
}

// Golden values of the published artifact, batch 1.
TEST(BackwardCheckmate, Vgg19AsPublished) {
  const auto summary = zoo_summary("VGG19");
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->base_cost, 58'896'187'392.0);
  EXPECT_EQ(summary->forward_cost, 19'632'062'464.0);
  EXPECT_EQ(summary->activation_bytes, 65'666'976);
  EXPECT_EQ(summary->fixed_bytes, 1'149'337'920);
  const auto vgg16 = zoo_summary("VGG16");
  ASSERT_TRUE(vgg16.ok());
  EXPECT_EQ(vgg16->base_cost, 46'410'792'960.0);
}

// No schedule can use less than the largest op with all it reads: 4 tensors of 12,845,056 bytes
// at the gradient of the first convolution.
TEST(BackwardCheckmate, Vgg19StructuralBound) {
  const auto graph = zoo_graph("vgg19");
  ASSERT_TRUE(graph.ok());
  Bytes bound = 0;
  for (OpId op : graph->ops()) {
    Bytes live = graph->bytes(graph->outputs(op)[0]);
    for (TensorId t : graph->inputs(op)) live += graph->bytes(t);
    bound = std::max(bound, live);
  }
  EXPECT_EQ(bound, 51'380'224);
}

}  // namespace
}  // namespace regen
