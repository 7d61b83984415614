#include "regen/published/lower_sets/format/format_lower_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/graph/builder.h"
#include "regen/published/graph_formats.h"
#include "tests/graph/format_test_data.h"

namespace regen::published {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// x -Conv-> a -ReLU-> b, loss = Add(a, b): the gradient of a has two makers. The blocks are not
// in topological order.
const char* const kSmall = R"(5 6
0 100 0
1 40 /conv/W
2 100 _
3 100 _
4 4 _
forward
2 1
2 _
3 _
4
Add
{"rank": 2}
forward
2 1
0 _
1 _
2
Convolution2DFunction
{"rank": 0, "sy": 1}
forward
1 1
2 _
3
ReLU
{"rank": 1}
backward
1 2
4 gradient
2
3
Add
{"rank": 2}
backward
3 2
2 gradient
0 input
1 input
0
1
Convolution2DFunction
{"rank": 0, "sy": 1}
backward
2 1
3 gradient
3 output
2
ReLU
{"rank": 1}
)";

std::string error_of(std::string_view text) {
  const auto graph = read_graph(text, "g.txt");
  return graph.ok() ? "no error" : graph.error().message;
}

TEST(FormatLowerSets, KeepsTheTextByteForByte) {
  const auto file = read_lower_set_file(kSmall, "g.txt");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->variables.size(), 5u);
  EXPECT_EQ(file->blocks.size(), 6u);
  EXPECT_EQ(file->blocks[4].inputs[0], (LowerSetRead{2, LowerSetRole::kGradient}));
  EXPECT_EQ(write_lower_set_file(*file), kSmall);
}

TEST(FormatLowerSets, ToleratesBlanksAtLineEnds) {
  std::string text;
  for (const char* c = kSmall; *c; ++c)
    text += *c == '\n' ? std::string(" \r\n") : std::string(1, *c);
  EXPECT_EQ(*read_lower_set_file(text + "\n\n", "g"), *read_lower_set_file(kSmall, "g"));
}

TEST(FormatLowerSets, BecomesAGraphInTopologicalOrder) {
  const auto graph = read_graph(kSmall, "g.txt");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  std::vector<std::string> names;
  for (OpId op : graph->ops()) names.push_back(graph->name(op));
  // Backward in reverse; the second gradient of a is added to the first at once.
  EXPECT_THAT(
      names, ElementsAre("Convolution2DFunction_1", "ReLU_2", "Add_0", "Add_0/backward",
                         "ReLU_2/backward", "v2/accumulate/1", "Convolution2DFunction_1/backward"));
  EXPECT_EQ(graph->phase(OpId(1)), Phase::kForward);
  EXPECT_EQ(graph->phase(OpId(2)), Phase::kLoss);
  EXPECT_EQ(graph->phase(OpId(3)), Phase::kBackward);
  // Conv 10 + ReLU 1 + Add 1; backward costs nothing.
  EXPECT_EQ(graph->base_cost(), 12);
  EXPECT_EQ(graph->kind(TensorId(0)), TensorKind::kInput);
  EXPECT_EQ(graph->kind(TensorId(1)), TensorKind::kParam);
  EXPECT_EQ(graph->kind(TensorId(2)), TensorKind::kActivation);
  // No op makes the gradient of the loss, so Add's backward reads nothing.
  EXPECT_THAT(indices(graph->inputs(OpId(3))), ElementsAre());
  // v2/grad/0 is tensor 5, v3/grad 6, v2/grad/1 7, v2/grad 8.
  EXPECT_THAT(indices(graph->outputs(OpId(3))), ElementsAre(5, 6));
  EXPECT_THAT(indices(graph->inputs(OpId(4))), ElementsAre(6, 3));
  EXPECT_THAT(indices(graph->inputs(OpId(5))), ElementsAre(5, 7));
  EXPECT_THAT(indices(graph->outputs(OpId(5))), ElementsAre(8));
  EXPECT_THAT(indices(graph->inputs(OpId(6))), ElementsAre(8, 0, 1));
  EXPECT_EQ(graph->name(TensorId(8)), "v2/grad");
  EXPECT_EQ(graph->kind(TensorId(8)), TensorKind::kGradient);
  // The gradients of what exists before the step stay: input (as in the solvers) and parameter.
  EXPECT_EQ(graph->kind(graph->outputs(OpId(6))[0]), TensorKind::kOutput);
  EXPECT_EQ(graph->kind(graph->outputs(OpId(6))[1]), TensorKind::kOutput);
}

TEST(FormatLowerSets, AccumulatesInPlaceByChoice) {
  const auto graph = read_graph(kSmall, "g.txt");
  const auto variants = graph->variants(OpId(5));
  ASSERT_EQ(variants.size(), 2u);
  EXPECT_FALSE(graph->overwrites(variants[0]).valid());
  EXPECT_EQ(graph->overwrites(variants[1]), TensorId(5));
}

TEST(FormatLowerSets, SurvivesTheWayThroughAGraph) {
  const auto graph = read_graph(kSmall, "g.txt");
  const auto text = write_graph(*graph, GraphFormat::kLowerSets);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, kSmall);
  // And through regen JSON, where the attributes carry what the graph does not say.
  const auto json = write_graph(*graph, GraphFormat::kRegen);
  const auto again = read_graph(*json, "g.json");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, *graph);
  EXPECT_EQ(*write_graph(*again, GraphFormat::kLowerSets), kSmall);
}

TEST(FormatLowerSets, KeepsNamesThatTheRolesDoNotExplain) {
  // An input without a number and an intermediate with a name.
  std::string text = replaced(kSmall, "0 100 0\n", "0 100 _\n");
  text = replaced(text, "3 100 _\n", "3 100 named\n");
  const auto graph = read_graph(text, "g.txt");
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->kind(TensorId(0)), TensorKind::kInput);
  EXPECT_EQ(graph->kind(TensorId(3)), TensorKind::kActivation);
  EXPECT_EQ(*write_graph(*graph, GraphFormat::kLowerSets), text);
}

TEST(FormatLowerSets, ReadsAValueTwice) {
  const std::string text =
      "2 2\n0 8 0\n1 8 _\nforward\n2 1\n0 _\n0 _\n1\nAdd\n{}\n"
      "backward\n1 2\n1 gradient\n0\n0\nAdd\n{}\n";
  const auto graph = read_graph(text, "g.txt");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->num_ops(), 3u);  // with one accumulation
  EXPECT_EQ(*write_graph(*graph, GraphFormat::kLowerSets), text);
}

TEST(FormatLowerSets, IgnoresStaleAttributes) {
  // The carried text says one thing, the sizes another: what is written follows the graph.
  const auto graph = read_graph(kSmall, "g.txt");
  std::string json = *write_graph(*graph, GraphFormat::kRegen);
  json = replaced(json, R"("name":"v3","bytes":100)", R"("name":"v3","bytes":60)");
  json = replaced(json, R"("name":"v3/grad","bytes":100)", R"("name":"v3/grad","bytes":61)");
  const auto edited = read_graph(json, "g.json");
  ASSERT_TRUE(edited.ok()) << edited.error().message;
  const auto text = write_graph(*edited, GraphFormat::kLowerSets);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto file = read_lower_set_file(*text, "g");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->variables[3].bytes, 60);
  EXPECT_THAT(file->blocks[0].attributes, HasSubstr("\"name\": \"Convolution2DFunction_1\""));
}

// x, w -> conv -> y -> loss; the backward ops read y only.
Graph plain_graph() {
  GraphBuilder builder("plain");
  const TensorId x =
      builder.add_tensor({.name = "images", .bytes = 10, .kind = TensorKind::kInput});
  const TensorId w =
      builder.add_tensor({.name = "conv one/W", .bytes = 20, .kind = TensorKind::kParam});
  const TensorId y = builder.add_simple_op("conv one", "conv2d", Phase::kForward, {x, w}, 30,
                                           TensorKind::kActivation, 5);
  const TensorId loss =
      builder.add_simple_op("loss", "mse", Phase::kLoss, {y}, 4, TensorKind::kActivation, 1);
  const TensorId dy = builder.add_simple_op("dloss", "mse_backward", Phase::kBackward, {y}, 30,
                                            TensorKind::kGradient, 1);
  builder.add_simple_op("dconv", "conv_backward", Phase::kBackward, {dy, y}, 20,
                        TensorKind::kOutput, 1);
  (void)loss;
  return *std::move(builder).build();
}

TEST(FormatLowerSets, WritesAnyGraphOfOneOutputOps) {
  const auto text = write_graph(plain_graph(), GraphFormat::kLowerSets);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, R"(4 4
0 10 0
1 20 /conv_one/W
2 30 _
3 4 _
forward
2 1
0 _
1 _
2
Conv2d
{"name": "conv one", "rank": 0}
forward
1 1
2 _
3
mse
{"name": "loss", "rank": 1}
backward
2 2
2 gradient
2 output
0
1
Conv2d
{"name": "conv one", "rank": 0}
backward
2 1
3 gradient
2 input
2
mse
{"name": "loss", "rank": 1}
)");
  const auto graph = read_graph(*text, "g.txt");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->name(OpId(0)), "conv one");
  EXPECT_EQ(graph->base_cost(), 11);
}

TEST(FormatLowerSets, NamesTheOpItCannotWrite) {
  GraphBuilder builder("two");
  const TensorId a = builder.add_tensor({.bytes = 1});
  const TensorId b = builder.add_tensor({.bytes = 1});
  builder.add_op({.name = "split", .outputs = {a, b}});
  const auto text = write_graph(*std::move(builder).build(), GraphFormat::kLowerSets);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().message,
            "graph 'two': op 0 'split' makes 2 tensors, expected 1: lower-set text has forward ops "
            "of one output only");
}

TEST(FormatLowerSets, RefusesBadCounts) {
  EXPECT_EQ(error_of("1000000000 1000000000\n"),
            "g.txt: line 1: '1000000000' found, expected variables, 0 to 0");
  EXPECT_EQ(error_of("2"),
            "g.txt: line 1: '2' found, expected the numbers of variables and blocks");
  EXPECT_EQ(error_of("0 0"), "g.txt: graph 'lower-sets': has no ops");
  EXPECT_THAT(error_of(replaced(kSmall, "5 6", "5 5")), HasSubstr("expected an even number"));
  EXPECT_EQ(
      error_of(replaced(kSmall, "5 6", "5 4")),
      "g.txt: line 21: 'forward' found, expected backward for block 2 of 4: the first half is "
      "forward, the second backward");
  EXPECT_THAT(error_of(replaced(kSmall, "2 1\n2 _", "99999999 1\n2 _")),
              HasSubstr("g.txt: line 8: '99999999' found, expected inputs, 0 to "));
  EXPECT_THAT(error_of(replaced(kSmall, "1 1\n2 _\n3\n", "1 2\n2 _\n3\n4\n")),
              HasSubstr("2 outputs found, expected 1 in a forward block"));
}

TEST(FormatLowerSets, RefusesBadLines) {
  EXPECT_EQ(error_of(replaced(kSmall, "1 40 /conv/W", "2 40 /conv/W")),
            "g.txt: line 3: variable id '2' found, expected 1: ids count up from 0");
  EXPECT_EQ(error_of(replaced(kSmall, "1 40 /conv/W", "1 -4 /conv/W")),
            "g.txt: line 3: '-4' found, expected a number of bytes, 0 to 9007199254740992");
  EXPECT_EQ(error_of(replaced(kSmall, "1 40 /conv/W", "1 40")),
            "g.txt: line 3: '1 40' found, expected a variable as 'id bytes name'");
  EXPECT_EQ(error_of(replaced(kSmall, "2 _\n3 _", "2 _\n5 _")),
            "g.txt: line 10: '5' found, expected the id of a variable, 0 to 4");
  EXPECT_EQ(error_of(replaced(kSmall, "2 _\n3 _", "2 _\n3 input")),
            "g.txt: line 10: kind 'input' found, expected _ in a forward block");
  EXPECT_EQ(
      error_of(replaced(kSmall, "4 gradient", "4 _")),
      "g.txt: line 29: kind '_' found, expected gradient, input or output in a backward block");
  EXPECT_THAT(error_of(replaced(kSmall, "{\"rank\": 1}", "rank 1")),
              HasSubstr("g.txt: line 26: the attributes: not valid JSON"));
  EXPECT_EQ(error_of(replaced(kSmall, "{\"rank\": 1}", "[]")),
            "g.txt: line 26: an array found, expected a JSON object");
  EXPECT_EQ(error_of(kSmall + std::string("more\n")),
            "g.txt: line 50: 'more' found, expected the end after the last block");
  EXPECT_EQ(error_of(replaced(kSmall, "/conv/W", "/\xff")), "g.txt: not UTF-8 text");
}

TEST(FormatLowerSets, SaysWhereATruncatedTextEnds) {
  const std::string text = kSmall;
  // Cut anywhere before the last line: always one line that names the source, never a crash.
  for (std::size_t size = 0; size + 12 < text.size(); ++size) {
    EXPECT_THAT(error_of(text.substr(0, size)), ::testing::StartsWith("g.txt: ")) << size;
  }
  EXPECT_EQ(error_of(text.substr(0, text.find("backward\n1 2"))),
            "g.txt: line 27: the text ends, expected backward");
}

TEST(FormatLowerSets, RefusesWhatIsNoGraph) {
  EXPECT_EQ(error_of(replaced(kSmall, "2 _\n3\nReLU", "2 _\n2\nReLU")),
            "g.txt: variable 2 is made twice, by the forward blocks 1 and 2");
  EXPECT_EQ(error_of(replaced(kSmall, "0 _\n1 _\n2\n", "3 _\n1 _\n2\n")),
            "g.txt: the graph is cyclic: block 2 'ReLU' -> block 1 'Convolution2DFunction' -> "
            "block 2");
  // ReLU's backward would need the gradient that it makes itself.
  EXPECT_EQ(error_of(replaced(kSmall, "3 gradient", "2 gradient")),
            "g.txt: the graph is cyclic: block 5 'ReLU' -> block 5");
}

TEST(FormatLowerSets, CountsTheSmallGraph) {
  const auto file = read_lower_set_file(kSmall, "g.txt");
  // G: a -> b, a -> loss, b -> loss; 100 + 100 + 4 bytes; 10 + 1 + 1.
  EXPECT_EQ(lower_set_statistics(*file), (LowerSetStatistics{.variables = 5,
                                                             .intermediates = 3,
                                                             .edges = 3,
                                                             .activation_bytes = 204,
                                                             .parameter_bytes = 40,
                                                             .forward_cost = 12}));
}

struct PublishedGraph {
  const char* name;
  LowerSetStatistics statistics;
};

void PrintTo(const PublishedGraph& graph, std::ostream* out) {
  *out << graph.name;
}

class PublishedLowerSets : public ::testing::TestWithParam<PublishedGraph> {
 protected:
  void SetUp() override {
    const std::string path = "computational_graphs/cg_" + std::string(GetParam().name) + ".txt";
    if (!has_reference_data(path)) {
      GTEST_SKIP() << "no " << reference_data(path) << "; set REGEN_REFERENCE_DATA to the data";
    }
    text_ = read_reference(path);
  }

  std::string text_;
};

TEST_P(PublishedLowerSets, HasThePublishedSizes) {
  const auto file = read_lower_set_file(text_, GetParam().name);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const LowerSetStatistics counted = lower_set_statistics(*file);
  EXPECT_EQ(counted, GetParam().statistics)
      << counted.variables << " " << counted.intermediates << " " << counted.edges << " "
      << counted.activation_bytes << " " << counted.parameter_bytes << " " << counted.forward_cost;
}

TEST_P(PublishedLowerSets, ComesBackByteForByte) {
  const auto file = read_lower_set_file(text_, GetParam().name);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(write_lower_set_file(*file), text_);
}

TEST_P(PublishedLowerSets, SurvivesTheWayThroughAGraph) {
  const auto graph = read_graph(text_, GetParam().name);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->base_cost(), GetParam().statistics.forward_cost);
  const auto text = write_graph(*graph, GraphFormat::kLowerSets);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, text_);
  const auto json = write_graph(*graph, GraphFormat::kRegen);
  ASSERT_TRUE(json.ok()) << json.error().message;
  const auto again = read_graph(*json, "g.json");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(*again == *graph);
}

// The table of the published graphs: variables, #V, edges, activation and parameter bytes, T(V).
INSTANTIATE_TEST_SUITE_P(
    All, PublishedLowerSets,
    ::testing::Values(
        PublishedGraph{"vgg19", {86, 46, 45, 4'004'508'676, 574'668'960, 190}},
        PublishedGraph{"unet", {108, 60, 63, 11'781'604'356, 124'401'416, 231}},
        PublishedGraph{"googlenet", {266, 134, 162, 1'273'252'884, 53'513'120, 665}},
        PublishedGraph{"resnet50", {340, 176, 191, 4'605'604'868, 102'228'384, 653}},
        PublishedGraph{"pspnet", {727, 385, 422, 7'343'443'000, 282'017'672, 1411}},
        PublishedGraph{"resnet152", {986, 516, 565, 9'974'838'276, 240'771'488, 1911}},
        PublishedGraph{"densenet", {1054, 568, 645, 11'661'796'356, 114'724'000, 2008}}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace regen::published
