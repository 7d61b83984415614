#include "regen/models/zoo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "regen/base/file.h"
#include "regen/models/backward/backward_checkmate.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

constexpr BackwardStyle kStyles[] = {BackwardStyle::kCheckmate, BackwardStyle::kExact};

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const ZooInfo& info : zoo_list()) {
    if (info.name != "chain:N") names.push_back(info.name);
  }
  return names;
}

struct Row {
  const char* name;
  std::int64_t layers;
  std::int64_t nodes;
  std::int64_t edges;
  std::int64_t parameters;
};

// Structure counts of the published artifact's models.
TEST(Zoo, StructureAsInTheReference) {
  constexpr Row kRows[] = {
      {"VGG16", 22, 45, 87, 138'357'544},     {"VGG19", 25, 51, 99, 143'667'240},
      {"MobileNet", 92, 185, 367, 4'253'864}, {"vgg_unet", 35, 71, 148, 12'332'755},
      {"segnet", 38, 77, 151, 3'707'411},     {"fcn_8_vgg", 36, 73, 149, 134'456'985},
      {"fcn_8", 43, 87, 177, 69'912'025},     {"ResNet50", 176, 353, 751, 25'636'712},
  };
  for (const Row& row : kRows) {
    const auto summary = zoo_summary(row.name);
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    EXPECT_EQ(summary->layers, row.layers) << row.name;
    EXPECT_EQ(summary->nodes, row.nodes) << row.name;
    EXPECT_EQ(summary->edges, row.edges) << row.name;
    EXPECT_EQ(summary->parameters, row.parameters) << row.name;
  }
}

// The counts in the documentation of keras.applications.
TEST(Zoo, ParametersAsPublished) {
  const std::map<std::string, std::int64_t> published = {
      {"VGG16", 138'357'544},      {"VGG19", 143'667'240},      {"ResNet50", 25'636'712},
      {"ResNet101", 44'707'176},   {"ResNet152", 60'419'944},   {"ResNet50V2", 25'613'800},
      {"ResNet101V2", 44'675'560}, {"ResNet152V2", 60'380'648}, {"InceptionV3", 23'851'784},
      {"Xception", 22'910'480},    {"MobileNet", 4'253'864},    {"MobileNetV2", 3'538'984},
      {"DenseNet121", 8'062'504},  {"DenseNet169", 14'307'880}, {"DenseNet201", 20'242'984},
      {"NASNetMobile", 5'326'716}, {"NASNetLarge", 88'949'818},
  };
  ASSERT_EQ(published.size(), keras_models().size());
  for (const auto& [name, parameters] : published) {
    const auto net = zoo_layers(name);
    ASSERT_TRUE(net.ok()) << net.error().message;
    EXPECT_EQ(count_parameters(*net), parameters) << name;
  }
}

TEST(Zoo, NamesAreUniqueAndAnyLetterCase) {
  std::set<std::string> seen;
  for (std::string name : all_names()) {
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    EXPECT_TRUE(seen.insert(name).second) << name;
  }
  EXPECT_TRUE(zoo_graph("rEsNeT50").ok());
  EXPECT_TRUE(zoo_graph("CHAIN:5").ok());
}

TEST(Zoo, InputTextIsTheInputShape) {
  for (const ZooInfo& info : zoo_list()) {
    if (info.family == "modern" || info.name == "chain:N") continue;
    const auto net = zoo_layers(info.name);
    ASSERT_TRUE(net.ok()) << net.error().message;
    EXPECT_EQ(to_string(net->layer(LayerId(0)).shape), info.input) << info.name;
    EXPECT_EQ(net->name(), info.name);
  }
}

TEST(Zoo, EveryModelBuildsAndGrowsWithTheBatch) {
  for (const std::string& name : all_names()) {
    for (BackwardStyle style : kStyles) {
      const auto one = zoo_graph(name, {.batch = 1, .backward = style});
      const auto two = zoo_graph(name, {.batch = 2, .backward = style});
      ASSERT_TRUE(one.ok()) << one.error().message;
      ASSERT_TRUE(two.ok()) << two.error().message;
      ASSERT_EQ(one->num_tensors(), two->num_tensors());
      ASSERT_EQ(one->num_ops(), two->num_ops());
      for (TensorId t : one->tensors()) {
        // What belongs to parameters does not grow, nor do batch norm's statistics and the loss.
        const bool grows = one->bytes(t) * 2 == two->bytes(t);
        const bool stays = one->bytes(t) == two->bytes(t);
        EXPECT_TRUE(grows || stays) << name << " " << one->name(t);
        if (style == BackwardStyle::kCheckmate) {
          EXPECT_EQ(stays, one->fixed(t)) << name << " " << one->name(t);
        }
      }
      EXPECT_EQ(one->num_edges(), two->num_edges());
    }
  }
}

TEST(Zoo, ActivationBytesAreLinearInTheBatch) {
  for (const char* name : {"VGG19", "ResNet50", "pspnet_50"}) {
    const auto one = zoo_summary(name);
    const auto many = zoo_summary(name, {.batch = 7});
    ASSERT_TRUE(one.ok() && many.ok());
    EXPECT_EQ(many->activation_bytes, 7 * one->activation_bytes);
    EXPECT_EQ(many->base_cost, 7 * one->base_cost);
    EXPECT_EQ(many->fixed_bytes, one->fixed_bytes);
  }
}

TEST(Zoo, CheckmateGraphsMirrorTheForwardPass) {
  for (const std::string& name : all_names()) {
    const auto graph = zoo_graph(name);
    ASSERT_TRUE(graph.ok());
    const std::size_t n = graph->num_ops() / 2;
    ASSERT_EQ(graph->num_ops(), 2 * n + 1) << name;
    for (std::size_t i = 0; i < n; ++i) {
      const OpId forward(i);
      const OpId backward(2 * n - i);
      EXPECT_EQ(graph->name(backward), "grad " + graph->name(forward));
      EXPECT_EQ(graph->bytes(TensorId(2 * n - i)), graph->bytes(TensorId(i)));
    }
  }
}

TEST(Zoo, ExactGraphsHaveEveryParameterGradient) {
  for (const std::string& name : all_names()) {
    const auto graph = zoo_graph(name, {.backward = BackwardStyle::kExact});
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    std::map<std::string, Bytes> outputs;
    for (TensorId t : graph->tensors()) {
      if (graph->kind(t) == TensorKind::kOutput) outputs[graph->name(t)] = graph->bytes(t);
    }
    for (TensorId t : graph->tensors()) {
      if (graph->kind(t) != TensorKind::kParam) continue;
      EXPECT_EQ(outputs["grad " + graph->name(t)], graph->bytes(t)) << name;
      EXPECT_FALSE(graph->consumers(t).empty()) << name << " " << graph->name(t);
    }
    for (TensorId t : graph->tensors()) {
      if (graph->kind(t) != TensorKind::kActivation && graph->kind(t) != TensorKind::kGradient) {
        continue;
      }
      EXPECT_FALSE(graph->consumers(t).empty()) << name << " " << graph->name(t);
    }
  }
}

TEST(Zoo, RulesCanBeChosen) {
  const auto artifact = zoo_graph("fcn_8", {.rules = FlopRules::kArtifact});
  const auto plain = zoo_graph("fcn_8");
  const auto correct = zoo_graph("fcn_8", {.rules = FlopRules::kCorrect});
  ASSERT_TRUE(artifact.ok() && plain.ok() && correct.ok());
  EXPECT_EQ(*artifact, *plain);
  EXPECT_GT(correct->base_cost(), plain->base_cost());
  EXPECT_EQ(correct->fingerprint(), plain->fingerprint());
}

TEST(Zoo, ReferencesWithBatch) {
  const auto plain = parse_zoo_reference("vgg19");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->name, "vgg19");
  EXPECT_EQ(plain->batch, 1);
  const auto batched = parse_zoo_reference("chain:8@32");
  ASSERT_TRUE(batched.ok());
  EXPECT_EQ(batched->name, "chain:8");
  EXPECT_EQ(batched->batch, 32);
  for (const char* text : {"vgg19@", "vgg19@0", "vgg19@-3", "vgg19@1000001", "vgg19@1.5",
                           "vgg19@99999999999999999999", "vgg19@four", "@4", ""}) {
    EXPECT_FALSE(parse_zoo_reference(text).ok()) << text;
  }
  EXPECT_EQ(parse_zoo_reference("vgg19@0").error().message,
            "zoo: batch 0 of 'vgg19@0' is out of range, expected 1 to 1,000,000");
}

TEST(Zoo, UnknownNamesGetSuggestions) {
  const auto graph = zoo_graph("vg19");
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.error().message, HasSubstr("no model is named 'vg19', expected perhaps VGG19"));
  EXPECT_THAT(graph.error().message, HasSubstr("'regen zoo' lists all names"));
  EXPECT_THAT(zoo_graph("something else entirely").error().message,
              HasSubstr("expected a name that 'regen zoo' lists"));
  EXPECT_THAT(zoo_graph("a\nb").error().message, HasSubstr("'a?b'"));
  EXPECT_FALSE(zoo_graph("").ok());
}

TEST(Zoo, Chains) {
  const auto graph = zoo_graph("chain:32");
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->num_ops(), 65u);
  EXPECT_EQ(graph->num_edges(), 96u);
  EXPECT_EQ(zoo_summary("chain:32")->layers, 32);
  for (const char* name : {"chain:0", "chain:", "chain:-1", "chain:1000001", "chain:x"}) {
    EXPECT_THAT(zoo_graph(name).error().message, HasSubstr("expected chain:N")) << name;
  }
  EXPECT_THAT(zoo_graph("chain:3", {.batch = 2}).error().message, HasSubstr("expected batch 1"));
  EXPECT_THAT(zoo_layers("chain:3").error().message, HasSubstr("has no layers"));
}

TEST(Zoo, BatchOutOfRangeIsRefused) {
  for (BackwardStyle style : kStyles) {
    EXPECT_FALSE(zoo_graph("VGG19", {.batch = kMaxBatch + 1, .backward = style}).ok());
    EXPECT_FALSE(zoo_graph("VGG19", {.batch = -1, .backward = style}).ok());
  }
}

// VGG19 has tensors of 12,845,056 bytes a sample: with 2^40 samples one of them passes 8 PiB, and
// the product with 2^50 would not fit 64 bits.
TEST(Zoo, SizesThatOverflowAreRefused) {
  const auto net = zoo_layers("VGG19");
  ASSERT_TRUE(net.ok());
  for (int exponent : {31, 40, 50}) {
    const std::int64_t batch = std::int64_t{1} << exponent;
    const auto checkmate = checkmate_graph(*net, batch);
    ASSERT_FALSE(checkmate.ok());
    EXPECT_THAT(checkmate.error().message, HasSubstr("8 PiB"));
    const auto exact = exact_graph(*net, {.batch = batch});
    ASSERT_FALSE(exact.ok());
    EXPECT_THAT(exact.error().message, HasSubstr("8 PiB"));
  }
}

// docs/reference/models.md lists every model with its counts; on failure, paste the row shown.
TEST(Zoo, DocumentationIsUpToDate) {
  const std::string here = __FILE__;
  const auto page =
      read_file(here.substr(0, here.rfind("tests/models")) + "docs/reference/models.md");
  ASSERT_TRUE(page.ok()) << page.error().message;
  for (const ZooInfo& info : zoo_list()) {
    if (info.name == "chain:N" || info.name.starts_with("linear")) continue;
    const auto checkmate = zoo_summary(info.name);
    const auto exact = zoo_summary(info.name, {.backward = BackwardStyle::kExact});
    ASSERT_TRUE(checkmate.ok() && exact.ok());
    std::string row = "| " + info.name + " | " + info.input;
    for (std::int64_t count : {checkmate->layers, checkmate->nodes, checkmate->edges}) {
      row += " | " + std::to_string(count);
    }
    row += " | " + format_grouped(checkmate->parameters);
    row += " | " + std::to_string(exact->nodes) + " |\n";
    EXPECT_NE(page->find(row), std::string::npos) << "docs/reference/models.md lacks: " << row;
  }
}

TEST(Zoo, OptimizerNeedsTheExactBackward) {
  const auto graph = zoo_graph("VGG16", {.optimizer = Optimizer::kAdam});
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.error().message, HasSubstr("expected the exact one"));
}

}  // namespace
}  // namespace regen
