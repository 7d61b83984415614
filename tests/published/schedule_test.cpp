#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/published/lower_sets/format/format_lower_sets.h"
#include "regen/published/lower_sets/format/schedule_run.h"
#include "tests/graph/format_test_data.h"

namespace regen::published {
namespace {

using ::testing::HasSubstr;

// x(100) -Conv-> a(100) -ReLU-> b(60), loss = Add(a, b). The ReLU reads its output backward, the
// convolution its input and its weights(40).
const char* const kGraph = R"(5 6
0 100 0
1 40 /conv/W
2 100 _
3 60 _
4 4 _
forward
2 1
0 _
1 _
2
Convolution2DFunction
{"rank": 0}
forward
1 1
2 _
3
ReLU
{"rank": 1}
forward
2 1
2 _
3 _
4
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
{"rank": 0}
backward
2 1
3 gradient
3 output
2
ReLU
{"rank": 1}
backward
1 2
4 gradient
2
3
Add
{"rank": 2}
)";

// b is dropped and made again; the Add is split so that the gradient of b comes first.
const char* const kSchedule = R"(compute 0
compute 1
compute 2
forget 4 forward
forget 3 forward
compute 5 1
compute 1
forget 2 forward
compute 4 0
forget 3 forward
forget 3 backward
compute 5 0
compute 3 0 1
forget 2 backward
)";

LowerSetFile file() {
  return read_lower_set_file(kGraph, "g").value();
}

std::string error_of(const std::string& text) {
  const auto schedule = read_schedule(text, "s.txt");
  if (!schedule.ok()) return schedule.error().message;
  const auto run = run_schedule(file(), *schedule, "s.txt");
  return run.ok() ? "no error" : run.error().message;
}

TEST(Schedule, SurvivesItsText) {
  const auto schedule = read_schedule(kSchedule, "s.txt");
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(schedule->size(), 14u);
  EXPECT_EQ(write_schedule(*schedule), kSchedule);
  EXPECT_TRUE(looks_like_schedule(kSchedule));
  EXPECT_FALSE(looks_like_schedule("{\"format\": \"regen-plan\"}"));
}

// After each order: a 100, +b 160, +loss 164, -loss 160, -b 100, +gb 160, +b 220, -a 120, +ga 220,
// -b 160, -gb 100, ga again in place 100, +gx and gW 240 (of it 140 outside the budget), -ga 140.
// So the peak is 240 in line 13, and 220 without what is outside. The ReLU (1 of 12) ran twice.
TEST(Schedule, CountsAsTheSolversDo) {
  const auto run = run_schedule(file(), *read_schedule(kSchedule, "s.txt"), "s.txt");
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(run->peak_bytes, 240);
  EXPECT_EQ(run->peak_line, 13u);
  EXPECT_EQ(run->activation_peak_bytes, 220);
  EXPECT_EQ(run->base_cost, 12);
  EXPECT_EQ(run->overhead_cost, 1);
  EXPECT_EQ(run->recomputed, 1u);
}

TEST(Schedule, ComesFromAPlan) {
  const Graph graph = graph_from_lower_sets(file(), "g").value();
  Plan plan;
  for (OpId op : graph.ops()) plan.steps.push_back(Step::compute(op));
  plan.steps.insert(plan.steps.begin() + 3, Step::release(TensorId(4)));
  const auto schedule = schedule_from_plan(graph, plan);
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(write_schedule(*schedule),
            "compute 0\ncompute 1\ncompute 2\nforget 4 forward\ncompute 5 0 1\ncompute 4 0\n"
            "compute 3 0 1\n");
  plan.steps.insert(plan.steps.begin() + 1, Step::offload(TensorId(2)));
  EXPECT_THAT(schedule_from_plan(graph, plan).error().message, HasSubstr("step 1"));
}

TEST(Schedule, RefusesBadLinesByTheirNumber) {
  EXPECT_EQ(error_of("IMPOSSIBLE\n"),
            "s.txt: line 1: IMPOSSIBLE found: the solver had no schedule for its budget");
  EXPECT_THAT(error_of(""), HasSubstr("line 1: the text ends"));
  EXPECT_THAT(error_of("compute 0\n\ncompute 1\n"), HasSubstr("line 2: an empty line"));
  EXPECT_THAT(error_of("compute 0\ncompute x\n"), HasSubstr("line 2: 'compute x' found"));
  EXPECT_THAT(error_of("compute -1\n"), HasSubstr("line 1: 'compute -1' found"));
  EXPECT_THAT(error_of("forget 2 sideways\n"), HasSubstr("line 1: 'forget 2 sideways' found"));
  EXPECT_THAT(error_of("compute 6\n"), HasSubstr("line 1: block 6, expected one below 6"));
  EXPECT_THAT(error_of("compute 0 0\n"), HasSubstr("line 1: compute 0 is a forward block"));
  EXPECT_THAT(error_of("compute 1\n"), HasSubstr("line 1: the value of variable 2 is not there"));
  EXPECT_THAT(error_of("forget 2 forward\n"), HasSubstr("variable 2 is not there"));
  EXPECT_THAT(error_of("forget 9 forward\n"), HasSubstr("variable 9, expected one below 5"));
  EXPECT_THAT(error_of("forget 1 forward\n"), HasSubstr("it is an input or a parameter"));
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  const std::string text = kSchedule;
  EXPECT_THAT(error_of(replaced(text, "compute 5 1\n", "compute 5\n")),
              HasSubstr("line 6: compute 5 is a backward block"));
  EXPECT_THAT(error_of(replaced(text, "compute 5 1\n", "compute 5 2\n")),
              HasSubstr("line 6: output 2 of block 5, expected one below 2"));
  EXPECT_THAT(error_of(replaced(text, "compute 5 0\n", "compute 5 1\n")),
              HasSubstr("line 12: output 1 of block 5 is made a second time"));
  EXPECT_THAT(error_of(replaced(text, "compute 5 0\n", "")),
              HasSubstr("line 12: the gradient of variable 2 is not whole: 1 of 2 parts"));
  EXPECT_THAT(error_of(replaced(text, "compute 5 0\n", "forget 2 backward\n")),
              HasSubstr("line 12: the gradient of variable 2 is forgotten before it is whole"));
  EXPECT_THAT(error_of(replaced(text, "compute 3 0 1\n", "compute 3 0\n")),
              HasSubstr("the gradient of a parameter, was never made"));
  EXPECT_THAT(error_of("compute 0\n"), HasSubstr("forward block 1 never ran"));
}

}  // namespace
}  // namespace regen::published
