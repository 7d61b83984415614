#include "regen/cost/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "regen/base/file.h"
#include "regen/graph/builder.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

// conv with the variants gemm and fft, then two ops that are both named relu.
Graph small_graph() {
  GraphBuilder builder("small");
  const TensorId x = builder.add_tensor({.name = "x", .bytes = 1});
  const TensorId y = builder.add_tensor({.name = "y", .bytes = 1});
  const TensorId z = builder.add_tensor({.name = "z", .bytes = 1});
  builder.add_op({.name = "conv", .outputs = {x}, .variants = {{.name = "gemm"}, {.name = "fft"}}});
  builder.add_op({.name = "relu", .inputs = {x}, .outputs = {y}});
  builder.add_op({.name = "relu", .inputs = {y}, .outputs = {z}});
  return std::move(builder).build().value();
}

CostTable small_table() {
  return {.device = "unit",
          .fallback = {},
          .entries = {{.op = "conv", .variant = "gemm", .seconds = {5, 4}},
                      {.op = "conv", .variant = "fft", .seconds = {3, 3}},
                      {.op = "relu", .seconds = {1, 1}},
                      {.op = "relu", .index = OpId(2), .seconds = {2, 2}}}};
}

Result<Graph> price(CostTable table) {
  auto model = make_table_model(std::move(table));
  if (!model.ok()) return model.error();
  return apply_costs(small_graph(), **model);
}

std::string error_of(CostTable table) {
  const auto priced = price(std::move(table));
  return priced.ok() ? "accepted" : priced.error().message;
}

std::string error_of_text(const std::string& rest) {
  const auto table =
      parse_cost_table(R"({"format": "regen-cost-table", "version": 1)" + rest + "}", "t.json");
  return table.ok() ? "accepted" : table.error().message;
}

// The entry with an index wins over the one with the name alone.
TEST(CostTable, PricesByNameVariantAndIndex) {
  const auto graph = price(small_table());
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->cost_unit(), CostUnit::kSecond);
  EXPECT_EQ(graph->cost(VariantId(0)), 5);
  EXPECT_EQ(graph->rerun_cost(VariantId(0)), 4);
  EXPECT_EQ(graph->cost(VariantId(1)), 3);
  EXPECT_EQ(graph->cost(VariantId(2)), 1);
  EXPECT_EQ(graph->cost(VariantId(3)), 2);
}

TEST(CostTable, NamesTheFirstMissingOp) {
  CostTable table = small_table();
  table.entries.erase(table.entries.begin() + 1);
  EXPECT_EQ(error_of(table),
            "cost table: no entry for op 'conv' index 0 variant 'fft' of the graph 'small', "
            "expected one, or a default");
}

TEST(CostTable, DefaultServesWhatHasNoEntry) {
  const auto graph = price({.fallback = OpCost{7, 8}, .entries = {{.op = "relu"}}});
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->cost(VariantId(1)), 7);
  EXPECT_EQ(graph->rerun_cost(VariantId(1)), 8);
  EXPECT_EQ(graph->cost(VariantId(2)), 0);
}

TEST(CostTable, RefusesAGraphItWasNotMadeFor) {
  CostTable table = small_table();
  table.entries[3].index = OpId(0);
  EXPECT_THAT(error_of(table), HasSubstr("op 'relu' index 0: in the graph 'small' this op is "
                                         "'conv', expected a table made for this graph"));
  table.entries[3].index = OpId(3);
  EXPECT_THAT(error_of(table), HasSubstr("op 'relu' index 3: the graph 'small' has only 3 ops"));
}

TEST(CostTable, RefusesTwoEntriesForOneThing) {
  CostTable table = small_table();
  table.entries.push_back(table.entries[1]);
  EXPECT_EQ(error_of(table),
            "cost table: entries[4]: a second entry for op 'conv' variant 'fft', expected at "
            "most one");
}

// "ab" + "c" and "a" + "bc" are different entries.
TEST(CostTable, KeepsNamesAndVariantsApart) {
  const CostTable table{.entries = {{.op = "ab", .variant = "c"}, {.op = "a", .variant = "bc"}}};
  EXPECT_TRUE(check_cost_table(table, "t").ok());
}

TEST(CostTable, RefusesSecondsThatAreNone) {
  CostTable table = small_table();
  table.entries[2].seconds.rerun = -1;
  EXPECT_THAT(error_of(table), HasSubstr("entries[2]: cost 1 and rerun cost -1 found"));
  table = small_table();
  table.fallback = OpCost{std::numeric_limits<double>::quiet_NaN(), 0};
  EXPECT_THAT(error_of(table), HasSubstr("default: cost nan"));
}

TEST(CostTable, ReadsBackWhatItWrites) {
  CostTable table = small_table();
  EXPECT_EQ(*parse_cost_table(write_cost_table(table), "t"), table);
  table.device.clear();
  table.fallback = OpCost{1e-6, 2.5e-6};
  EXPECT_EQ(*parse_cost_table(write_cost_table(table), "t"), table);
  EXPECT_EQ(*parse_cost_table(write_cost_table({}), "t"), CostTable{});
}

TEST(CostTable, IsReadFromTheFileOfASpec) {
  const std::string path = ::testing::TempDir() + "/small_table.json";
  ASSERT_TRUE(write_file(path, write_cost_table(small_table())).ok());
  const auto model = make_cost_model("table:" + path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(apply_costs(small_graph(), **model)->base_cost(), 5 + 1 + 2);
}

TEST(CostTable, RefusesBadFiles) {
  EXPECT_THAT(error_of_text(""), HasSubstr("t.json: field 'entries' is missing"));
  EXPECT_THAT(error_of_text(R"(, "entries": 3)"), HasSubstr("entries: 3 found, expected an array"));
  EXPECT_THAT(error_of_text(R"(, "entries": [], "unit": "second")"),
              HasSubstr("t.json: unknown field 'unit'"));
  EXPECT_THAT(error_of_text(R"(, "entries": [], "device": 3)"),
              HasSubstr("device: 3 found, expected a string"));
  EXPECT_THAT(error_of_text(R"(, "entries": [], "default": 3)"),
              HasSubstr("default: 3 found, expected an object"));
  EXPECT_THAT(error_of_text(R"(, "entries": [], "default": {"cost": -1})"),
              HasSubstr("t.json: default: cost -1"));
  EXPECT_THAT(parse_cost_table(R"({"format": "regen-device"})", "t").error().message,
              HasSubstr("expected 'regen-cost-table'"));
}

TEST(CostTable, RefusesBadEntries) {
  EXPECT_THAT(error_of_text(R"(, "entries": [{"cost": 1}])"),
              HasSubstr("t.json: entries[0]: field 'op' is missing"));
  EXPECT_THAT(error_of_text(R"(, "entries": [{"op": "a"}])"),
              HasSubstr("entries[0]: field 'cost' is missing"));
  EXPECT_THAT(error_of_text(R"(, "entries": [{"op": "a", "cost": "1"}])"),
              HasSubstr("entries[0].cost: \"1\" found, expected a number"));
  EXPECT_THAT(error_of_text(R"(, "entries": [{"op": "a", "cost": 1, "index": -1}])"),
              HasSubstr("entries[0].index: -1 found, expected a whole number from 0"));
  EXPECT_THAT(error_of_text(R"(, "entries": [{"op": "a", "cost": 1, "index": 4294967295}])"),
              HasSubstr("4294967295 found"));
  EXPECT_THAT(error_of_text(R"(, "entries": [{"op": "a", "cost": 1, "time": 1}])"),
              HasSubstr("entries[0]: unknown field 'time'"));
  EXPECT_THAT(error_of_text(R"(, "entries": [{"op": "a", "cost": 1}, {"op": "a", "cost": 2}])"),
              HasSubstr("t.json: entries[1]: a second entry for op 'a'"));
}

}  // namespace
}  // namespace regen
