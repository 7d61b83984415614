#include "regen/cost/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "regen/graph/builder.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

// One operation, one byte a second; matrix work in fp16 twice, in fp32 as fast as the rest.
Device unit_device() {
  return {.name = "unit",
          .matrix_fp32 = 1,
          .matrix_fp16 = 2,
          .vector_fp32 = 1,
          .memory_bandwidth = 1,
          .launch_seconds = 0,
          .memory_bytes = 100};
}

struct Work {
  const char* type;
  double flops;
  double traffic;
};

// A chain of ops named a, b, ... with one variant each.
Graph chain(const std::vector<Work>& works) {
  GraphBuilder builder("chain");
  std::vector<TensorId> inputs;
  for (std::size_t i = 0; i < works.size(); ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    const TensorId output = builder.add_tensor({.name = name, .bytes = 1});
    builder.add_op({.name = name,
                    .type = works[i].type,
                    .inputs = inputs,
                    .outputs = {output},
                    .variants = {{.flops = works[i].flops, .traffic = works[i].traffic}}});
    inputs = {output};
  }
  return std::move(builder).build().value();
}

std::vector<double> costs_of(const Graph& graph) {
  std::vector<double> costs;
  for (OpId op : graph.ops()) costs.push_back(graph.cost(graph.default_variant(op)));
  return costs;
}

std::vector<double> roofline(const Graph& graph, const Device& device, Precision precision) {
  const auto priced = apply_costs(graph, *make_roofline_model(device, precision));
  EXPECT_TRUE(priced.ok());
  EXPECT_EQ(priced->cost_unit(), CostUnit::kSecond);
  return costs_of(*priced);
}

class FakeModel : public CostModel {
 public:
  explicit FakeModel(OpCost cost) : cost_(cost) {}
  CostUnit unit() const override { return CostUnit::kSecond; }
  Result<OpCost> cost(const Graph&, VariantId) const override { return cost_; }

 private:
  OpCost cost_;
};

TEST(FlopModel, TakesTheArithmetic) {
  const Graph graph = chain({{"conv", 8, 100}, {"view", 0, 0}, {"relu", 3, 100}});
  const auto priced = apply_costs(graph, *make_flop_model());
  ASSERT_TRUE(priced.ok());
  EXPECT_EQ(costs_of(*priced), (std::vector<double>{8, 0, 3}));
  EXPECT_EQ(priced->cost_unit(), CostUnit::kFlop);
  EXPECT_EQ(priced->base_cost(), 11);
}

TEST(FlopModel, RefusesAGraphWithoutFlops) {
  const auto priced = apply_costs(chain({{"conv", 0, 5}}), *make_flop_model());
  ASSERT_FALSE(priced.ok());
  EXPECT_EQ(
      priced.error().message,
      "graph 'chain': no op has flops, expected some for the cost model flop, or --cost graph: "
      "what it carries");
}

// a: 8 operations in 8 s outlast 5 bytes in 5 s. b: 2 operations wait for 7 bytes. c: a copy.
TEST(Roofline, TakesTheLongerOfArithmeticAndTraffic) {
  const Graph graph = chain({{"conv", 8, 5}, {"relu", 2, 7}, {"copy", 0, 4}});
  EXPECT_EQ(roofline(graph, unit_device(), Precision::kFp32), (std::vector<double>{8, 7, 4}));
}

// As above with 10 s for each launch; the view does no work, so nothing is launched.
TEST(Roofline, AddsALaunchToEveryOpThatDoesSomething) {
  Device device = unit_device();
  device.launch_seconds = 10;
  const Graph graph = chain({{"conv", 8, 5}, {"view", 0, 0}, {"relu", 2, 7}});
  EXPECT_EQ(roofline(graph, device, Precision::kFp32), (std::vector<double>{18, 0, 17}));
}

// Matrix peak 4 in fp32 and 8 in fp16, 1 for the rest: the conv's 8 operations take 2 s or 1 s,
// those of the relu 8 s in both.
TEST(Roofline, GivesMatrixOpsTheirOwnPeak) {
  Device device = unit_device();
  device.matrix_fp32 = 4;
  device.matrix_fp16 = 8;
  const Graph graph = chain({{"Conv2D", 8, 0}, {"relu", 8, 0}});
  EXPECT_EQ(roofline(graph, device, Precision::kFp32), (std::vector<double>{2, 8}));
  EXPECT_EQ(roofline(graph, device, Precision::kFp16), (std::vector<double>{1, 8}));
}

TEST(Roofline, RefusesAGraphWithoutWork) {
  const auto model = make_roofline_model(unit_device(), Precision::kFp32);
  const auto priced = apply_costs(chain({{"conv", 0, 0}}), *model);
  ASSERT_FALSE(priced.ok());
  EXPECT_THAT(priced.error().message, HasSubstr("no op has flops or traffic"));
}

TEST(Roofline, KnowsMatrixTypes) {
  for (const char* type : {"conv",
                           "Conv2D",
                           "DepthwiseConv2D",
                           "conv2d_backward",
                           "aten.convolution.default",
                           "Dense",
                           "dense_backward",
                           "linear",
                           "Linear",
                           "grad_linear",
                           "matmul",
                           "MatMul",
                           "attention",
                           "scaled_dot_product_attention",
                           "aten::addmm",
                           "mm",
                           "aten.mm.default",
                           "bmm",
                           "baddbmm",
                           "einsum",
                           "gemm"}) {
    EXPECT_TRUE(is_matrix_type(type)) << type;
  }
  for (const char* type :
       {"", "relu", "bilinear", "upsample_bilinear2d", "nonlinearity", "comm", "summary",
        "convert_element_type", "prims.convert", "embedding_dense_backward", "add", "batch_norm",
        "softmax", "condense"}) {
    EXPECT_FALSE(is_matrix_type(type)) << type;
  }
}

TEST(ApplyCosts, KeepsStructureAndTakesRerunCosts) {
  const Graph graph = chain({{"conv", 8, 5}, {"relu", 2, 7}});
  const auto priced = apply_costs(graph, FakeModel({3, 4}));
  ASSERT_TRUE(priced.ok());
  EXPECT_EQ(priced->fingerprint(), graph.fingerprint());
  EXPECT_EQ(priced->base_cost(), 6);
  EXPECT_EQ(priced->rerun_cost(VariantId(1)), 4);
  EXPECT_EQ(priced->cost_unit(), CostUnit::kSecond);
  EXPECT_EQ(graph.cost_unit(), CostUnit::kFlop) << "the graph given is left as it was";
}

TEST(ApplyCosts, PricesEveryVariant) {
  GraphBuilder builder("variants");
  const TensorId output = builder.add_tensor({.name = "y", .bytes = 1});
  builder.add_op({.name = "conv",
                  .type = "conv",
                  .outputs = {output},
                  .variants = {{.name = "gemm", .flops = 8}, {.name = "winograd", .flops = 4}}});
  const auto priced = apply_costs(std::move(builder).build().value(), *make_flop_model());
  ASSERT_TRUE(priced.ok());
  EXPECT_EQ(priced->cost(VariantId(0)), 8);
  EXPECT_EQ(priced->cost(VariantId(1)), 4);
  EXPECT_EQ(priced->base_cost(), 8);
}

TEST(ApplyCosts, RefusesCostsThatAreNoCosts) {
  const Graph graph = chain({{"conv", 8, 5}});
  EXPECT_EQ(apply_costs(graph, FakeModel({-1, 0})).error().message,
            "graph 'chain': op 0 'a': cost -1, expected a finite number not below 0");
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_THAT(apply_costs(graph, FakeModel({1, inf})).error().message, HasSubstr("cost inf"));
  // 8 operations at the smallest peak there is take longer than a double can say.
  Device slow = unit_device();
  slow.matrix_fp32 = std::numeric_limits<double>::denorm_min();
  EXPECT_FALSE(apply_costs(graph, *make_roofline_model(slow, Precision::kFp32)).ok());
}

TEST(MakeCostModel, UnderstandsItsNames) {
  EXPECT_EQ(make_cost_model("flop").value()->unit(), CostUnit::kFlop);
  const Graph graph = chain({{"conv", 8, 0}});
  for (const auto& [spec, seconds] :
       {std::pair("roofline", 8.0), std::pair("roofline:fp32", 8.0), {"roofline:fp16", 4.0}}) {
    const auto model = make_cost_model(spec, unit_device());
    ASSERT_TRUE(model.ok()) << spec;
    EXPECT_EQ(apply_costs(graph, **model)->base_cost(), seconds) << spec;
  }
}

TEST(MakeCostModel, RefusesWhatItDoesNotUnderstand) {
  for (const char* spec : {"", "flops", "roofline:fp8", "table", "table:"}) {
    const auto model = make_cost_model(spec, unit_device());
    ASSERT_FALSE(model.ok()) << spec;
    EXPECT_THAT(model.error().message, HasSubstr("expected flop, roofline, roofline:fp16"));
  }
  EXPECT_THAT(make_cost_model("roofline").error().message, HasSubstr("needs a device, expected"));
  EXPECT_THAT(make_cost_model("roofline", Device{.name = "zero"}).error().message,
              HasSubstr("device 'zero': matrix_fp32: 0 found"));
  EXPECT_THAT(make_cost_model("table:/no/such/table").error().message, HasSubstr("/no/such/table"));
}

}  // namespace
}  // namespace regen
