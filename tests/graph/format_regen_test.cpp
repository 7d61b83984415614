#include "regen/graph/format_regen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "regen/base/random.h"
#include "regen/graph/builder.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

// x -> relu (two variants, one with a mask) -> y -> relu_backward -> dx, plus an update.
Graph rich_graph() {
  GraphBuilder builder("rich \"graph\"\n", CostUnit::kSecond);
  builder.set_attributes(R"({"batch":32,"nested":{"a":[1,2.5,null]}})");
  const auto tensor = [&](const char* name, Bytes bytes, TensorKind kind) {
    return builder.add_tensor({.name = name, .bytes = bytes, .kind = kind});
  };
  const TensorId x = tensor("x", 64, TensorKind::kInput);
  const TensorId w = tensor("w/\xc3\xa9", 8, TensorKind::kParam);
  const TensorId h = tensor("h", 64, TensorKind::kActivation);
  const TensorId y = tensor("y", 64, TensorKind::kActivation);
  const TensorId mask = tensor("", 2, TensorKind::kActivation);
  const TensorId dx = tensor("dx", 64, TensorKind::kGradient);
  const TensorId dw = builder.add_tensor(
      {.name = "dw", .bytes = 8, .kind = TensorKind::kOutput, .attributes = R"({"of":"w"})"});
  builder.add_op({.name = "fc",
                  .type = "linear",
                  .inputs = {x, w},
                  .outputs = {h},
                  .random = true,
                  .variants = {{.cost = 0.1, .flops = 1e300, .traffic = 144}}});
  builder.add_op({.name = "relu",
                  .type = "relu",
                  .inputs = {h},
                  .outputs = {y},
                  .variants = {{.name = "plain", .cost = 1e-9},
                               {.name = "mask",
                                .cost = 1.0 / 3,
                                .rerun_cost = 5e-324,
                                .workspace = 7,
                                .extra_outputs = {mask}},
                               {.name = "in_place", .overwrites = h}},
                  .attributes = R"({"slope":0.0})"});
  builder.add_op({.name = "back",
                  .type = "relu_backward",
                  .phase = Phase::kBackward,
                  .inputs = {y, mask, h},
                  .outputs = {dx, dw},
                  .recomputable = false,
                  .variants = {{.reads = {{y}}}, {.reads = {{mask, h}}}}});
  builder.add_op({.name = "sgd", .phase = Phase::kUpdate, .inputs = {w, dw}, .mutates = {w}});
  auto graph = std::move(builder).build();
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return *graph;
}

std::string error_of(std::string_view text) {
  const auto graph = read_regen_graph(text, "g.json");
  return graph.ok() ? "no error" : graph.error().message;
}

// A graph with these tensors and ops around a fixed header.
std::string document(const std::string& tensors, const std::string& ops,
                     const std::string& more = "") {
  return R"({"format":"regen-graph","version":1,)" + more + R"("tensors":[)" + tensors +
         R"(],"ops":[)" + ops + "]}";
}

const char* const kInput = R"({"name":"x","bytes":4,"kind":"input"})";
const char* const kTensor = R"({"name":"y","bytes":4})";
const char* const kOp = R"({"name":"f","inputs":[0],"outputs":[1]})";

TEST(FormatRegen, ReadsBackWhatItWrote) {
  const Graph graph = rich_graph();
  const auto text = write_regen_graph(graph);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto again = read_regen_graph(*text, "g.json");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, graph);
  EXPECT_EQ(*write_regen_graph(*again), *text);
}

TEST(FormatRegen, LeavesDefaultsOut) {
  GraphBuilder builder("small");
  const TensorId x = builder.add_tensor({.name = "x", .bytes = 4, .kind = TensorKind::kInput});
  const TensorId y = builder.add_tensor({.name = "y", .bytes = 8});
  builder.add_op(
      {.name = "f", .type = "exp", .inputs = {x}, .outputs = {y}, .variants = {{.cost = 3}}});
  const auto graph = std::move(builder).build();
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(*write_regen_graph(*graph),
            R"({"format":"regen-graph","version":1,"name":"small","cost_unit":"flop",
"tensors":[
{"name":"x","bytes":4,"kind":"input"},
{"name":"y","bytes":8}
],
"ops":[
{"name":"f","type":"exp","inputs":[0],"outputs":[1],"variants":[{"cost":3}]}
]}
)");
}

TEST(FormatRegen, KeepsEveryBitOfCosts) {
  Random random(7);
  GraphBuilder builder("bits");
  for (int i = 0; i < 2000; ++i) {
    const double cost = std::ldexp(random.real(), static_cast<int>(random.between(-1000, 1000)));
    builder.add_simple_op("f", "f", Phase::kForward, {}, i, TensorKind::kActivation, cost);
  }
  for (double cost : {9007199254740993.0, 18446744073709551616.0, 1e19, 5e-324,
                      std::numeric_limits<double>::max()}) {
    // 1.8e308 summed with anything overflows the base cost, which is allowed to be infinite.
    builder.add_simple_op("f", "f", Phase::kForward, {}, 1, TensorKind::kActivation, cost);
  }
  const auto graph = std::move(builder).build();
  ASSERT_TRUE(graph.ok());
  const auto again = read_regen_graph(*write_regen_graph(*graph), "bits");
  ASSERT_TRUE(again.ok()) << again.error().message;
  for (OpId op : graph->ops()) {
    EXPECT_EQ(again->cost(again->default_variant(op)), graph->cost(graph->default_variant(op)));
  }
}

TEST(FormatRegen, KeepsAttributeTextThatIsNotCompact) {
  for (const std::string text : {R"({"a": 1})", R"({ })", R"({"x":1.50})"}) {
    GraphBuilder builder("spaces");
    builder.set_attributes(text);
    builder.add_simple_op("f", "f", Phase::kForward, {}, 1, TensorKind::kActivation, 1);
    const auto graph = std::move(builder).build();
    const auto again = read_regen_graph(*write_regen_graph(*graph), "g");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->attributes(), text);
    EXPECT_EQ(*again, *graph);
  }
}

TEST(FormatRegen, KeepsVeryDeepAttributes) {
  // 62 levels: alone within the 64 allowed, but not three levels down in the file.
  const std::string text = "{\"a\":" + std::string(61, '[') + std::string(61, ']') + "}";
  GraphBuilder builder("deep");
  builder.add_op({.name = "f", .attributes = text});
  const auto graph = std::move(builder).build();
  const auto again = read_regen_graph(*write_regen_graph(*graph), "g");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, *graph);
}

TEST(FormatRegen, RefusesToWriteWhatJsonCannotHold) {
  const auto write = [](std::string name, std::string attributes) {
    GraphBuilder builder("g");
    builder.add_op({.name = "fine"});
    builder.add_op({.name = std::move(name), .attributes = std::move(attributes)});
    return write_regen_graph(*std::move(builder).build());
  };
  EXPECT_EQ(write("\xff", "").error().message,
            "ops[1]: '\xff' is not UTF-8 text, so JSON cannot hold it");
  EXPECT_THAT(write("f", "{\"a\":").error().message,
              HasSubstr("ops[1]: attributes: not valid JSON"));
  EXPECT_EQ(write("f", "[1]").error().message,
            "ops[1]: attributes: an array found, expected an object");
}

TEST(FormatRegen, ReadsFieldsInAnyOrderAndIds) {
  const auto graph = read_regen_graph(
      R"({"ops":[{"outputs":[1],"inputs":[0],"id":0}],
          "tensors":[{"id":0,"kind":"input","bytes":1},{"id":1,"bytes":2}],
          "version":1,"format":"regen-graph"})",
      "g");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->num_ops(), 1u);
  EXPECT_EQ(graph->cost_unit(), CostUnit::kFlop);
  EXPECT_EQ(graph->bytes(TensorId(1)), 2);
}

TEST(FormatRegen, RefusesOtherFormatsAndVersions) {
  EXPECT_EQ(error_of("[]"), "g.json: an array found, expected an object");
  EXPECT_EQ(error_of("{}"), "g.json: field 'format' is missing");
  EXPECT_EQ(error_of(R"({"format":"regen-plan","version":1,"tensors":[],"ops":[]})"),
            R"(g.json: format: "regen-plan" found, expected "regen-graph")");
  EXPECT_EQ(error_of(R"({"format":"regen-graph","version":2,"tensors":[],"ops":[]})"),
            "g.json: version: 2 found, expected 1, the only version known here");
  EXPECT_EQ(error_of(R"({"format":"regen-graph","version":1,"ops":[]})"),
            "g.json: field 'tensors' is missing");
  EXPECT_EQ(error_of(document("", "")), "g.json: graph '': has no ops");
}

TEST(FormatRegen, NamesThePlaceOfABadTensor) {
  const auto error = [](const std::string& tensor) {
    return error_of(document(kInput + ("," + tensor), kOp));
  };
  EXPECT_EQ(error("3"), "g.json: tensors[1]: 3 found, expected an object");
  EXPECT_EQ(error("{}"), "g.json: tensors[1]: field 'bytes' is missing");
  const std::string range = " found, expected a whole number from 0 to 9007199254740992";
  EXPECT_EQ(error(R"({"bytes":-5})"), "g.json: tensors[1].bytes: -5" + range);
  EXPECT_EQ(error(R"({"bytes":1.5})"), "g.json: tensors[1].bytes: 1.5" + range);
  EXPECT_EQ(error(R"({"bytes":9007199254740993})"),
            "g.json: tensors[1].bytes: 9007199254740993" + range);
  EXPECT_EQ(error(R"({"bytes":1e3})"), "g.json: tensors[1].bytes: 1000.0" + range);
  EXPECT_EQ(error(R"({"bytes":"4"})"), "g.json: tensors[1].bytes: \"4\"" + range);
  EXPECT_EQ(error(R"({"bytes":1,"kind":"weight"})"),
            "g.json: tensors[1].kind: unknown tensor kind 'weight', expected input, param, state, "
            "activation, gradient or output");
  EXPECT_EQ(error(R"({"bytes":1,"name":7})"),
            "g.json: tensors[1].name: 7 found, expected a string");
  EXPECT_EQ(error(R"({"bytes":1,"size":7})"),
            "g.json: tensors[1]: unknown field 'size', expected one of id, name, bytes, kind and "
            "attributes");
  EXPECT_EQ(error(R"({"bytes":1,"attributes":[]})"),
            "g.json: tensors[1].attributes: an array found, expected an object, or its text as a "
            "string");
  EXPECT_EQ(error(R"({"bytes":1,"attributes":"7"})"),
            "g.json: tensors[1].attributes: the string holds 7, expected an object");
  EXPECT_THAT(error(R"({"bytes":1e999})"), HasSubstr("number overflow"));
}

TEST(FormatRegen, RefusesDuplicateAndMisplacedIds) {
  const std::string tensors = R"({"id":0,"bytes":1,"kind":"input"},{"id":0,"bytes":1})";
  EXPECT_EQ(
      error_of(document(tensors, kOp)),
      "g.json: tensors[1].id: duplicate or misplaced id 0, expected 1: ids count up from 0 in "
      "file order");
  EXPECT_EQ(error_of(document(kInput + std::string(",") + kTensor, R"({"id":4,"outputs":[1]})")),
            "g.json: ops[0].id: id 4, expected 0: ids count up from 0 in file order");
  EXPECT_EQ(error_of(document(R"({"bytes":1,"bytes":2})", kOp)),
            "g.json: key 'bytes' is given twice in one object");
}

TEST(FormatRegen, NamesThePlaceOfABadOp) {
  const auto error = [](const std::string& op) {
    return error_of(document(std::string(kInput) + "," + kTensor, op));
  };
  EXPECT_EQ(error(R"({"inputs":[0,2]})"),
            "g.json: ops[0].inputs[1]: 2 found, expected the id of a tensor, 0 to 1");
  EXPECT_EQ(error(R"({"inputs":[-1]})"),
            "g.json: ops[0].inputs[0]: -1 found, expected the id of a tensor, 0 to 1");
  EXPECT_EQ(error(R"({"inputs":0})"), "g.json: ops[0].inputs: 0 found, expected an array");
  EXPECT_EQ(error(R"({"phase":"before"})"),
            "g.json: ops[0].phase: unknown phase 'before', expected forward, loss, backward or "
            "update");
  EXPECT_EQ(error(R"({"random":1})"), "g.json: ops[0].random: 1 found, expected true or false");
  EXPECT_THAT(error(R"({"cost":1})"), HasSubstr("g.json: ops[0].cost: unknown field"));
  EXPECT_EQ(error(R"({"variants":[]})"),
            "g.json: ops[0].variants: an empty array found, expected at least one variant");
  EXPECT_EQ(error(R"({"variants":[{},{"cost":-1}]})"),
            "g.json: ops[0].variants[1].cost: -1 found, expected a number that is not negative");
  EXPECT_EQ(error(R"({"variants":[{"workspace":0.5}]})"),
            "g.json: ops[0].variants[0].workspace: 0.5 found, expected a whole number from 0 to "
            "9007199254740992");
  EXPECT_THAT(error(R"({"variants":[{"time":1}]})"),
              HasSubstr("g.json: ops[0].variants[0]: unknown field 'time', expected one of name"));
}

TEST(FormatRegen, SaysWhereTheBuilderRefused) {
  EXPECT_EQ(error_of(document(std::string(kInput) + "," + kTensor, R"({"name":"f"})")),
            "g.json: graph '': tensor 1 'y' of kind activation is made by no op");
  EXPECT_EQ(error_of(document(std::string(kInput) + "," + kTensor,
                              std::string(kOp) + R"(,{"name":"g","outputs":[1]})")),
            "g.json: graph '': tensor 1 'y' is made twice, by op 'f' and by op 'g'");
}

TEST(FormatRegen, ChoiceGroupsComeBack) {
  const std::string two = R"("variants":[{"cost":1,"workspace":8},{"cost":2}],"choice_group":1)";
  const std::string text =
      document(std::string(kInput) + "," + kTensor + R"(,{"bytes":4})",
               R"({"outputs":[1],)" + two + R"(},{"outputs":[2],)" + two + "}");
  const auto graph = read_regen_graph(text, "g.json");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->choice_group(OpId(0)), ChoiceGroupId(1));
  const std::string written = *write_regen_graph(*graph);
  EXPECT_THAT(written, HasSubstr(R"("choice_group":1})"));
  EXPECT_EQ(*read_regen_graph(written, "g.json"), *graph);
}

TEST(FormatRegen, RefusesBrokenChoiceGroups) {
  const auto error = [](const std::string& ops) {
    return error_of(document(std::string(kInput) + "," + kTensor + R"(,{"bytes":4})", ops));
  };
  EXPECT_EQ(error(R"({"choice_group":-1})"),
            "g.json: ops[0].choice_group: -1 found, expected a whole number from 0 to 4294967294");
  EXPECT_EQ(
      error(R"({"choice_group":"a"})"),
      "g.json: ops[0].choice_group: \"a\" found, expected a whole number from 0 to 4294967294");
  EXPECT_EQ(error(R"({"name":"f","outputs":[1]},{"name":"g","outputs":[2],"choice_group":2})"),
            "g.json: graph '': op 'g': choice group 2 found, expected a number below that of the "
            "ops, 2");
  EXPECT_EQ(
      error(R"({"name":"f","outputs":[1],"variants":[{},{}],"choice_group":0},
                     {"name":"g","outputs":[2],"choice_group":0})"),
      "g.json: graph '': op 'g': choice group 0 with 1 variant found, expected 2 as op 'f' of "
      "the same group has");
  EXPECT_EQ(error(R"({"name":"f","outputs":[1]},{"name":"g","inputs":[1],"outputs":[2],
                      "variants":[{},{"name":"in place","overwrites":1}],"choice_group":0})"),
            "g.json: graph '': op 'g' variant 'in place': reads, extra outputs or an overwritten "
            "input found in choice group 0, expected variants that differ in cost and workspace "
            "alone");
}

TEST(FormatRegen, TellsAWrongOrderFromACycle) {
  const std::string tensors =
      R"({"name":"a","bytes":1},{"name":"b","bytes":1},{"name":"c","bytes":1})";
  EXPECT_EQ(error_of(document(tensors, R"({"name":"g","inputs":[0],"outputs":[1]},
                                         {"name":"f","outputs":[0]},{"outputs":[2]})")),
            "g.json: ops[0] 'g' reads tensor 0 'a', which the later ops[1] 'f' makes, expected the "
            "ops in topological order");
  EXPECT_EQ(error_of(document(tensors, R"({"name":"f","inputs":[2],"outputs":[0]},
                                         {"name":"g","inputs":[0],"outputs":[1]},
                                         {"name":"h","inputs":[1],"outputs":[2]})")),
            "g.json: the graph is cyclic: ops[1] 'g' -> ops[2] 'h' -> ops[0] 'f' -> ops[1]");
  EXPECT_EQ(error_of(document(R"({"bytes":1})", R"({"name":"f","inputs":[0],"outputs":[0]})")),
            "g.json: the graph is cyclic: ops[0] 'f' -> ops[0]");
}

TEST(FormatRegen, ShowsOnlyTheBeginningOfALongCycle) {
  std::string tensors;
  std::string ops;
  for (int i = 0; i < 100; ++i) {
    tensors += (i ? "," : "") + std::string(R"({"bytes":1})");
    ops += (i ? "," : "") + std::string("{\"inputs\":[") + std::to_string((i + 99) % 100) +
           "],\"outputs\":[" + std::to_string(i) + "]}";
  }
  EXPECT_THAT(error_of(document(tensors, ops)), HasSubstr("-> ... (92 more) -> ops["));
}

TEST(FormatRegen, RefusesBrokenJson) {
  EXPECT_THAT(error_of(R"({"format":)"), HasSubstr("g.json: not valid JSON at line 1, column 11"));
  EXPECT_EQ(error_of(std::string(100000, '[')), "g.json: JSON nested deeper than 64");
  EXPECT_THAT(error_of("{\"format\":\"\xff\"}"), HasSubstr("not valid JSON"));
}

// A text of 2 MB must not ask for 50,000 variants times 50,000 reads.
TEST(FormatRegen, RefusesAnOpWithTooManyReads) {
  std::string inputs = "0";
  std::string variants = "{}";
  for (int i = 1; i < 50'000; ++i) {
    inputs += ",0";
    variants += ",{}";
  }
  const std::string op =
      "{\"inputs\":[" + inputs + "],\"outputs\":[1],\"variants\":[" + variants + "]}";
  EXPECT_THAT(error_of(document(std::string(kInput) + "," + kTensor, op)),
              HasSubstr("g.json: ops[0]: op '' with 50000 variants brings the reads"));
}

// 10,000 ops and 80,000 edges; benchmarks/load_bench.cpp measures this.
TEST(FormatRegen, ReadsTenThousandOps) {
  Random random(3);
  GraphBuilder builder("large");
  std::vector<TensorId> made;
  for (int i = 0; i < 10'000; ++i) {
    std::vector<TensorId> inputs{builder.add_tensor({.bytes = 4, .kind = TensorKind::kParam})};
    for (int k = 0; k < 8 && !made.empty(); ++k) {
      inputs.push_back(
          made[made.size() - 1 - random.next() % std::min<std::size_t>(made.size(), 50)]);
    }
    made.push_back(builder.add_simple_op("layer" + std::to_string(i), "conv", Phase::kForward,
                                         inputs, random.between(0, 1 << 30),
                                         TensorKind::kActivation, random.real() * 1e9));
  }
  const auto graph = std::move(builder).build();
  ASSERT_TRUE(graph.ok());
  const auto again = read_regen_graph(*write_regen_graph(*graph), "large.json");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(*again == *graph);
}

}  // namespace
}  // namespace regen
