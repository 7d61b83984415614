#include "regen/graph/format_dot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "regen/graph/builder.h"

namespace regen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(FormatDot, DrawsOpsAndEdges) {
  GraphBuilder builder("g");
  const TensorId x = builder.add_tensor({.name = "x", .bytes = 1, .kind = TensorKind::kInput});
  const TensorId y =
      builder.add_simple_op("f", "exp", Phase::kForward, {x}, 2048, TensorKind::kActivation, 1);
  builder.add_simple_op("df", "grad", Phase::kBackward, {y}, 0, TensorKind::kOutput, 1);
  // The largest op is full (0.08 + 0.52), one that makes nothing pale; blue forward, red backward.
  EXPECT_EQ(write_dot(*std::move(builder).build()), R"(digraph "g" {
  node [shape=box, style=filled, fontname="sans-serif"];
  op0 [fillcolor="0.58 0.600 1.000", label="f\n2.00 KiB", tooltip="exp"];
  op1 [fillcolor="0.02 0.080 1.000", label="df\n0 B", tooltip="grad"];
  op0 -> op1 [label="2.00 KiB", tooltip="f"];
}
)");
}

TEST(FormatDot, EscapesNames) {
  GraphBuilder builder("a\"b\\");
  builder.add_simple_op("line\nbreak\"", "\\N", Phase::kForward, {}, 1, TensorKind::kActivation, 1);
  const std::string text = write_dot(*std::move(builder).build());
  EXPECT_THAT(text, HasSubstr(R"(digraph "a\"b\\" {)"));
  EXPECT_THAT(text, HasSubstr(R"(label="line break\"\n1 B", tooltip="\\N")"));
}

TEST(FormatDot, LeavesLabelsOutOfLargeGraphs) {
  GraphBuilder builder("large");
  TensorId last = builder.add_tensor({.bytes = 1, .kind = TensorKind::kInput});
  for (int i = 0; i < 5001; ++i) {
    last = builder.add_simple_op("f", "f", Phase::kForward, {last}, 1, TensorKind::kActivation, 1);
  }
  const std::string text = write_dot(*std::move(builder).build());
  EXPECT_THAT(text, Not(HasSubstr("label")));
  // One line an op, one an edge, and three around them.
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5001 + 5000 + 3);
}

}  // namespace
}  // namespace regen
