#include "regen/published/graph_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/graph/builder.h"

namespace regen::published {
namespace {

using ::testing::HasSubstr;

Graph small_graph() {
  GraphBuilder builder("small");
  const TensorId x = builder.add_tensor({.name = "x", .bytes = 2048, .kind = TensorKind::kInput});
  const TensorId y =
      builder.add_simple_op("f", "exp", Phase::kForward, {x}, 2048, TensorKind::kActivation, 1);
  builder.add_simple_op("df", "exp_grad", Phase::kBackward, {y}, 2048, TensorKind::kOutput, 1);
  return *std::move(builder).build();
}

TEST(Formats, NamesComeBack) {
  for (GraphFormat format :
       {GraphFormat::kRegen, GraphFormat::kLowerSets, GraphFormat::kMonet, GraphFormat::kDot}) {
    EXPECT_EQ(*parse_format(to_string(format)), format);
  }
  EXPECT_EQ(parse_format("onnx").error().message,
            "unknown graph format 'onnx', expected regen, lower-sets, monet or dot");
}

TEST(Formats, GuessesFromTheExtension) {
  EXPECT_EQ(format_of_path("a/b.json"), GraphFormat::kRegen);
  EXPECT_EQ(format_of_path("b.txt"), GraphFormat::kLowerSets);
  EXPECT_EQ(format_of_path("b.dot"), GraphFormat::kDot);
  EXPECT_EQ(format_of_path("b.gv"), GraphFormat::kDot);
  EXPECT_EQ(format_of_path("b.json.gz"), std::nullopt);
  EXPECT_EQ(format_of_path("-"), std::nullopt);
}

TEST(Formats, RecognisesByContent) {
  EXPECT_EQ(*recognise_format(R"( {"format":"regen-graph"})"), GraphFormat::kRegen);
  EXPECT_EQ(*recognise_format("{\"name\":\"nodes\",\n\"ops\" : []}"), GraphFormat::kRegen);
  EXPECT_EQ(*recognise_format(R"({"model":"un","bs":11,"nodes":[]})"), GraphFormat::kMonet);
  EXPECT_EQ(*recognise_format(R"({"a":{"format":1},"s":"\"format\":","nodes":[]})"),
            GraphFormat::kMonet);
  EXPECT_EQ(*recognise_format("86 92\n0 1 _"), GraphFormat::kLowerSets);
  EXPECT_EQ(*recognise_format("digraph{}"), GraphFormat::kDot);
  EXPECT_EQ(*recognise_format("strict graph g {}"), GraphFormat::kDot);
}

TEST(Formats, SaysWhatItFoundInstead) {
  EXPECT_EQ(
      recognise_format("").error().message,
      "an empty text found, expected a regen graph (JSON), lower-set text or a MONeT instance "
      "(JSON)");
  EXPECT_THAT(recognise_format("hello\nworld").error().message,
              HasSubstr("a text that begins with 'hello' found"));
  EXPECT_THAT(recognise_format("graphics").error().message, HasSubstr("'graphics'"));
  EXPECT_THAT(recognise_format(R"({"a":1})").error().message,
              HasSubstr("a JSON text without the fields of a graph found"));
  for (const char* text : {"{", "{\"", "{\"\\", "{\"format", "{]\"format\":", "{\"format\""}) {
    EXPECT_FALSE(recognise_format(text).ok()) << text;
  }
  EXPECT_THAT(read_graph("x", "file.bin").error().message, ::testing::StartsWith("file.bin: "));
}

TEST(Formats, DotIsWrittenOnly) {
  const auto text = write_graph(small_graph(), GraphFormat::kDot);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(read_graph(*text, "g.dot").error().message,
              HasSubstr("g.dot: a DOT drawing found, which can be written only"));
}

TEST(Formats, EveryOtherFormatIsReadBack) {
  for (GraphFormat format : {GraphFormat::kRegen, GraphFormat::kLowerSets, GraphFormat::kMonet}) {
    const auto text = write_graph(small_graph(), format);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*recognise_format(*text), format);
    const auto graph = read_graph(*text, "g");
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    EXPECT_EQ(*write_graph(*graph, format), *text);
  }
}

}  // namespace
}  // namespace regen::published
