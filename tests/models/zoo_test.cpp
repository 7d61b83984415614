#include "regen/models/zoo.h"

#include <gtest/gtest.h>

namespace regen {
namespace {

TEST(Zoo, Vgg19) {
  const auto graph = zoo_graph("vgg19");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->num_ops(), 51u);
  EXPECT_EQ(graph->num_edges(), 99u);
  EXPECT_EQ(graph->base_cost(), 58'896'187'392.0);
  const auto summary = zoo_summary("VGG19");
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->activation_bytes, 65'666'976);
  EXPECT_EQ(summary->parameters, 143'667'240);
}

}  // namespace
}  // namespace regen
