#include "regen/published/monet/format/format_monet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/base/json.h"
#include "regen/graph/builder.h"
#include "regen/published/graph_formats.h"
#include "tests/graph/format_test_data.h"

namespace regen::published {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// conv (2 algorithms work, 1 failed) -> relu, in place or with a 1-byte mask -> loss; then the
// backward of relu (from input, output or mask, overwriting its gradient) and of conv's weights.
// 1 MiB is 1048576 bytes; relu's output is that large.
const char* const kSmall = R"({"model": "m", "bs": 2, "mode": "m_2_full", "loss": 3, "nodes": [
{"id":0,"kind":"FwdNode","op":"aten::_convolution","mem":1048576,"local_memory":0,"local_tensors":[],"fixed_mem":1000,
 "ws_mem_mb":[2.0,0.0,0.5],"ws_ms":[10.0,-1000.0,20.0],"re_ws_mem_mb":[2.0,0.0,0.5],"re_ws_ms":[10.0,-1000.0,20.0],
 "ip_ws_mem_mb":[2.0,0.0,0.5],"ip_ws_ms":[10.0,-1000.0,20.0],"args":[[]],"shape":[-1,131072],"intermediates":[]},
{"id":1,"kind":"FwdNode","op":"aten::relu_","mem":1048576,"local_memory":1048576,"local_tensors":[0],"fixed_mem":1000,
 "ws_mem_mb":[0.25,0.25,0.5],"ws_ms":[4.0,4.0,6.0],"re_ws_mem_mb":[0.25,0.25,0.5],"re_ws_ms":[3.0,4.0,6.0],
 "ip_ws_mem_mb":[-1.0,-1.0,-0.5],"ip_ws_ms":[2.0,2.0,5.0],"args":[[0]],"shape":[-1,131072],"intermediates":[[2,2]]},
{"id":2,"kind":"IntNode","op":"int::BinaryActReLU","mem":1,"local_memory":1048576,"local_tensors":[1],"fixed_mem":1000,
 "ws_mem_mb":[0.5],"ws_ms":[2.0],"re_ws_mem_mb":[0.5],"re_ws_ms":[2.0],"ip_ws_mem_mb":[-0.5],"ip_ws_ms":[3.0],
 "args":[[1]],"shape":[-1],"intermediates":[],"parent":1,"op_idx":2},
{"id":3,"kind":"FwdNode","op":"loss::loss","mem":1048576,"local_memory":1048576,"local_tensors":[1],"fixed_mem":1000,
 "ws_mem_mb":[0],"ws_ms":[0],"re_ws_mem_mb":[0],"re_ws_ms":[0],"ip_ws_mem_mb":[0],"ip_ws_ms":[0],
 "args":[[1]],"shape":[-1,131072],"intermediates":[]},
{"id":4,"kind":"BwdNode","op":"aten::relu__ip_grad","mem":1048576,"local_memory":1048576,"local_tensors":[3],"fixed_mem":1000,
 "ws_mem_mb":[-1.0,-1.0,0.125],"ws_ms":[5.0,6.0,7.0],"re_ws_mem_mb":[-1.0,-1.0,0.125],"re_ws_ms":[5.0,6.0,7.0],
 "ip_ws_mem_mb":[-1.0,-1.0,0.125],"ip_ws_ms":[5.0,6.0,7.0],"args":[[0,3],[1,3],[2,3]],"bwd_op":"ip_grad","fwd_id":1},
{"id":5,"kind":"BwdNode","op":"aten::_convolution_param_grad","mem":0,"local_memory":1048576,"local_tensors":[4],"fixed_mem":1300,
 "ws_mem_mb":[1.0],"ws_ms":[8.0],"re_ws_mem_mb":[1.0],"re_ws_ms":[8.0],"ip_ws_mem_mb":[1.0],"ip_ws_ms":[8.0],
 "args":[[4]],"bwd_op":"param_grad","fwd_id":0}],
"edges": [[0,1,0],[1,2,0],[1,3,0],[0,4,0],[3,4,0],[1,4,1],[3,4,1],[2,4,2],[3,4,2],[4,5,0]],
"conv_list": {"0":0,"5":1}, "num_conv_algos": 3, "inplace_list": {"1":0,"2":0}})";

std::string error_of(std::string_view text) {
  const auto graph = read_graph(text, "m.json");
  return graph.ok() ? "no error" : graph.error().message;
}

TEST(FormatMonet, KeepsEveryField) {
  const auto instance = read_monet_instance(kSmall, "m.json");
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  EXPECT_EQ(instance->batch, 2);
  EXPECT_EQ(instance->nodes[2].parent, 1u);
  EXPECT_EQ(instance->nodes[4].args[2], (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(instance->nodes[1].in_place.workspace_mib[0], -1.0);
  EXPECT_EQ(instance->inplace_list.at(2), 0u);
  const auto text = write_monet_instance(*instance);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*read_monet_instance(*text, "m.json"), *instance);
  EXPECT_EQ(nlohmann::json::parse(*text), nlohmann::json::parse(kSmall));
}

TEST(FormatMonet, ConvolutionVariantsAreTheWorkingAlgorithms) {
  const auto graph = read_graph(kSmall, "m.json");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->cost_unit(), CostUnit::kSecond);
  const auto variants = graph->variants(OpId(0));
  ASSERT_EQ(variants.size(), 2u);
  EXPECT_EQ(graph->name(variants[0]), "algorithm0");
  EXPECT_EQ(graph->name(variants[1]), "algorithm2");
  EXPECT_EQ(graph->cost(variants[0]), 0.010);
  EXPECT_EQ(graph->workspace(variants[0]), 2 << 20);
  EXPECT_EQ(graph->workspace(variants[1]), 1 << 19);
}

TEST(FormatMonet, ForwardVariantsArePlainWithMaskAndInPlace) {
  const auto graph = read_graph(kSmall, "m.json");
  const auto variants = graph->variants(OpId(1));
  ASSERT_EQ(variants.size(), 4u);
  // Plain: 4 ms, again 3 ms.
  EXPECT_EQ(graph->name(variants[0]), "plain");
  EXPECT_EQ(graph->cost(variants[0]), 0.004);
  EXPECT_EQ(graph->rerun_cost(variants[0]), 0.003);
  EXPECT_EQ(graph->workspace(variants[0]), 1 << 18);
  EXPECT_THAT(indices(graph->makes(variants[0])), ElementsAre(1));
  // With the mask: 4 + 2 ms, again 3 + 2; the larger workspace of the two.
  EXPECT_DOUBLE_EQ(graph->cost(variants[1]), 0.006);
  EXPECT_DOUBLE_EQ(graph->rerun_cost(variants[1]), 0.005);
  EXPECT_EQ(graph->workspace(variants[1]), 1 << 19);
  EXPECT_THAT(indices(graph->makes(variants[1])), ElementsAre(1, 2));
  // In place: 2 ms; -1 MiB measured plus the 1 MiB output that was not allocated is 0.
  EXPECT_EQ(graph->overwrites(variants[2]), TensorId(0));
  EXPECT_EQ(graph->cost(variants[2]), 0.002);
  EXPECT_EQ(graph->workspace(variants[2]), 0);
  // In place with the mask: 2 + 3 ms, -0.5 + 1 MiB.
  EXPECT_EQ(graph->overwrites(variants[3]), TensorId(0));
  EXPECT_DOUBLE_EQ(graph->cost(variants[3]), 0.005);
  EXPECT_EQ(graph->workspace(variants[3]), 1 << 19);
  EXPECT_THAT(indices(graph->makes(variants[3])), ElementsAre(1, 2));
}

TEST(FormatMonet, BackwardVariantsReadWhatTheyNeed) {
  const auto graph = read_graph(kSmall, "m.json");
  const OpId backward(3);
  EXPECT_EQ(graph->name(backward), "aten::relu__ip_grad#4");
  const auto variants = graph->variants(backward);
  ASSERT_EQ(variants.size(), 5u);
  EXPECT_THAT(indices(graph->reads(variants[0])), ElementsAre(0, 3));
  EXPECT_THAT(indices(graph->reads(variants[1])), ElementsAre(1, 3));
  EXPECT_THAT(indices(graph->reads(variants[2])), ElementsAre(2, 3));
  for (int p = 0; p < 3; ++p) EXPECT_FALSE(graph->overwrites(variants[p]).valid());
  EXPECT_EQ(graph->workspace(variants[0]), 0);
  EXPECT_EQ(graph->workspace(variants[2]), 1 << 17);
  // The two with negative workspace again, over the incoming gradient.
  EXPECT_EQ(graph->name(variants[3]), "implementation0_in_place");
  EXPECT_EQ(graph->overwrites(variants[3]), TensorId(3));
  EXPECT_THAT(indices(graph->reads(variants[4])), ElementsAre(1, 3));
}

TEST(FormatMonet, FixedMemoryBecomesTensors) {
  const auto graph = read_graph(kSmall, "m.json");
  EXPECT_EQ(graph->fixed_bytes(), 1000);
  // fixed_mem grows from 1000 to 1300 at the last node.
  const OpId last(4);
  ASSERT_EQ(graph->outputs(last).size(), 2u);
  EXPECT_EQ(graph->bytes(graph->outputs(last)[0]), 0);
  EXPECT_EQ(graph->bytes(graph->outputs(last)[1]), 300);
  EXPECT_EQ(graph->kind(graph->outputs(last)[1]), TensorKind::kOutput);
  EXPECT_EQ(graph->phase(OpId(2)), Phase::kLoss);
  EXPECT_EQ(graph->kind(TensorId(3)), TensorKind::kGradient);
}

TEST(FormatMonet, SurvivesTheWayThroughAGraph) {
  const auto graph = read_graph(kSmall, "m.json");
  const auto text = write_graph(*graph, GraphFormat::kMonet);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*read_monet_instance(*text, "m"), *read_monet_instance(kSmall, "m"));
  const auto json = write_graph(*graph, GraphFormat::kRegen);
  const auto again = read_graph(*json, "g.json");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, *graph);
  EXPECT_EQ(*write_graph(*again, GraphFormat::kMonet), *text);
}

TEST(FormatMonet, WritesNewCostsOfAnOldInstance) {
  const auto graph = read_graph(kSmall, "m.json");
  const std::vector<double> costs(graph->num_variants(), 0.5);
  const Graph measured = graph->with_costs(costs, costs, CostUnit::kSecond);
  // The op of the mask makes one tensor in its default variant, so one implementation remains.
  const auto instance = monet_from_graph(measured);
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  EXPECT_EQ(instance->nodes.size(), 5u);
  EXPECT_EQ(instance->nodes[0].first_run.ms, std::vector<double>{500});
}

TEST(FormatMonet, WritesAPlainGraphAsOneImplementationEach) {
  GraphBuilder builder("plain", CostUnit::kSecond);
  const TensorId x = builder.add_tensor({.name = "x", .bytes = 100, .kind = TensorKind::kInput});
  const TensorId a = builder.add_simple_op("f", "aten::tanh", Phase::kForward, {x}, 8,
                                           TensorKind::kActivation, 0.25);
  const TensorId b = builder.add_simple_op("g", "aten::exp", Phase::kForward, {a}, 12,
                                           TensorKind::kActivation, 0.5);
  const TensorId db =
      builder.add_simple_op("dg", "exp_grad", Phase::kBackward, {b}, 8, TensorKind::kGradient, 1);
  builder.add_simple_op("df", "tanh_grad", Phase::kBackward, {a, db}, 100, TensorKind::kOutput, 2);
  const auto graph = std::move(builder).build();
  const auto instance = monet_from_graph(*graph);
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  // f, g, a made-up loss, dg, df.
  ASSERT_EQ(instance->nodes.size(), 5u);
  EXPECT_EQ(instance->loss, 2u);
  EXPECT_EQ(instance->nodes[2].op, "loss::loss");
  EXPECT_EQ(instance->nodes[2].mem, 12);
  EXPECT_EQ(instance->nodes[1].first_run.ms[0], 500);
  EXPECT_THAT(instance->nodes[3].args[0], ElementsAre(1, 2));  // g's output and dL/dy
  EXPECT_EQ(instance->nodes[3].fwd_id, 1u);
  EXPECT_THAT(instance->nodes[4].args[0], ElementsAre(0, 3));
  // The last gradient is kept, so it grows the fixed memory instead.
  EXPECT_EQ(instance->nodes[4].mem, 0);
  EXPECT_EQ(instance->nodes[3].fixed_mem, 100);
  EXPECT_EQ(instance->nodes[4].fixed_mem, 200);
  const auto text = write_graph(*graph, GraphFormat::kMonet);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_TRUE(read_graph(*text, "m.json").ok());
}

TEST(FormatMonet, NamesTheOpItCannotWrite) {
  GraphBuilder builder("two");
  const TensorId a = builder.add_tensor({.bytes = 1});
  const TensorId b = builder.add_tensor({.bytes = 1});
  builder.add_op({.name = "split", .outputs = {a, b}});
  GraphBuilder forward("forward");
  forward.add_op({.name = "f"});
  builder.add_op({.name = "back", .phase = Phase::kBackward});
  EXPECT_THAT(monet_from_graph(*std::move(builder).build()).error().message,
              HasSubstr("graph 'two': op 0 'split' makes 2 tensors, expected 1"));
  EXPECT_EQ(monet_from_graph(*std::move(forward).build()).error().message,
            "graph 'forward': no backward op found, expected a whole training step");
}

TEST(FormatMonet, NamesThePlaceOfABadValue) {
  EXPECT_EQ(error_of(replaced(kSmall, "\"id\":1", "\"id\":0")),
            "m.json: nodes[1].id: 0 found, expected 1: ids count up from 0 in file order");
  EXPECT_EQ(error_of(replaced(kSmall, "\"kind\":\"IntNode\"", "\"kind\":\"Node\"")),
            "m.json: nodes[2].kind: \"Node\" found, expected FwdNode, IntNode or BwdNode");
  EXPECT_EQ(error_of(replaced(kSmall, "\"mem\":1,", "")),
            "m.json: nodes[2]: field 'mem' is missing");
  EXPECT_THAT(error_of(replaced(kSmall, "\"op_idx\":2", "\"op_idx\":2,\"bwd_op\":\"x\"")),
              HasSubstr("m.json: nodes[2]: unknown field 'bwd_op'"));
  EXPECT_EQ(error_of(replaced(kSmall, "\"mem\":1,", "\"mem\":1.5,")),
            "m.json: nodes[2].mem: 1.5 found, expected a whole number from 0 to 9007199254740992");
  EXPECT_EQ(error_of(replaced(kSmall, "[0,3],[1,3]", "[0,3],[6,3]")),
            "m.json: nodes[4].args[1][0]: 6 found, expected a whole number from 0 to 5");
  EXPECT_EQ(error_of(replaced(kSmall, "[0,3],[1,3]", "[0,3],[5,3]")),
            "m.json: nodes[4]: args name node 5, expected an earlier node");
  EXPECT_EQ(error_of(replaced(kSmall, "\"loss\": 3", "\"loss\": 6")),
            "m.json: loss: 6 found, expected a whole number from 0 to 5");
  EXPECT_EQ(error_of(replaced(kSmall, "\"loss\": 3", "\"loss\": 2")),
            "m.json: nodes[3]: a node of the wrong kind, expected BwdNode after the loss and only "
            "there");
  EXPECT_EQ(error_of(replaced(kSmall, "\"ws_ms\":[5.0,6.0,7.0]", "\"ws_ms\":[5.0,6.0]")),
            "m.json: nodes[4]: expected six cost lists of one length, at least one entry each");
  EXPECT_EQ(error_of(replaced(kSmall, "[0,1,0]", "[1,0,0]")),
            "m.json: edges[0]: expected a triple of a node, a later node below 6 and an "
            "implementation");
  EXPECT_EQ(error_of(replaced(kSmall, "{\"0\":0,\"5\":1}", "{\"00\":0}")),
            "m.json: conv_list: key '00' found, expected a node below 6");
  EXPECT_EQ(error_of(replaced(kSmall, "{\"1\":0,\"2\":0}", "{\"1\":1}")),
            "m.json: inplace_list pairs node 1 with 1, expected a forward node and an earlier one");
  EXPECT_EQ(error_of(replaced(kSmall, "\"parent\":1", "\"parent\":0")),
            "m.json: nodes[1]: intermediates name node 2, expected an IntNode whose parent and "
            "op_idx say the same");
  EXPECT_THAT(error_of(replaced(kSmall, "[2.0,0.0,0.5]", "[1e30,0.0,0.5]")),
              HasSubstr("m.json: nodes[0].ws_mem_mb[0]: 1e+30 found, expected at most"));
}

TEST(FormatMonet, RefusesAConvolutionWithoutAWorkingAlgorithm) {
  EXPECT_EQ(error_of(replaced(kSmall, "\"ws_ms\":[8.0]", "\"ws_ms\":[-1000]")),
            "m.json: nodes[5]: every algorithm failed, expected at least one of 0 ms or more");
}

TEST(FormatMonet, NeverCrashesOnATruncatedText) {
  const std::string text = kSmall;
  for (std::size_t size = 0; size < text.size(); size += 7) {
    EXPECT_NE(error_of(text.substr(0, size)), "no error");
  }
}

class PublishedMonet : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string path = "monet_instances/" + std::string(GetParam()) + ".json";
    if (!has_reference_data(path)) {
      GTEST_SKIP() << "no " << reference_data(path) << "; set REGEN_REFERENCE_DATA to the data";
    }
    text_ = read_reference(path);
  }

  std::string text_;
};

TEST_P(PublishedMonet, ComesBackAsTheSameValue) {
  const auto instance = read_monet_instance(text_, GetParam());
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  const auto text = write_monet_instance(*instance);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*read_monet_instance(*text, "again"), *instance);
  EXPECT_TRUE(nlohmann::json::parse(*text) == nlohmann::json::parse(text_));
}

TEST_P(PublishedMonet, SurvivesTheWayThroughAGraph) {
  const auto graph = read_graph(text_, GetParam());
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  const auto text = write_graph(*graph, GraphFormat::kMonet);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto again = read_graph(*text, "again");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(*again == *graph);
  EXPECT_EQ(*read_monet_instance(*text, ""), *read_monet_instance(text_, ""));
}

// The lists of local tensors are made as the published ones were.
TEST_P(PublishedMonet, LocalTensorsFollowFromTheEdges) {
  const auto published = read_monet_instance(text_, GetParam());
  const auto graph = graph_from_monet(*published, "m");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  const std::vector<double> costs(graph->num_variants(), 1);
  const auto plain = monet_from_graph(graph->with_costs(costs, costs, CostUnit::kSecond));
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  // Without intermediate nodes the numbering changes, so only instances without them compare.
  if (plain->nodes.size() != published->nodes.size()) return;
  for (std::size_t i = 0; i < plain->nodes.size(); ++i) {
    EXPECT_EQ(plain->nodes[i].local_memory, published->nodes[i].local_memory) << i;
    EXPECT_EQ(plain->nodes[i].fixed_mem, published->nodes[i].fixed_mem) << i;
    EXPECT_EQ(plain->nodes[i].mem, published->nodes[i].mem) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PublishedMonet,
    ::testing::Values("un_11_inplace_normal", "un_11_inplace_conv_normal", "un_11_inplace_multiway",
                      "un_11_inplace_newnode", "un_11_inplace_conv_multiway_newnode",
                      "vgg16_176_inplace_normal", "vgg16_176_inplace_conv_normal",
                      "vgg16_176_inplace_multiway", "vgg16_176_inplace_newnode",
                      "vgg16_176_inplace_conv_multiway_newnode"),
    [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace regen::published
