// Cuts by the number of second runs: nothing is lost between the two sides, and the best schedule
// is on the side that is said to hold it.
#include "regen/search/exact/rerun_branching.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "regen/search/judge.h"
#include "tests/support/oracles/stage_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<OpId> best_sequence(const Graph& graph, Bytes budget) {
  const auto outcome =
      solve("checkmate", Problem{.graph = &graph, .budget = budget + graph.fixed_bytes()});
  std::vector<OpId> sequence;
  for (const Step& step : outcome->plan->steps) {
    if (step.kind() == StepKind::kCompute) sequence.push_back(step.op());
  }
  return sequence;
}

// The least cost in a model, all memory rows that matter included.
double optimum(StageModel model) {
  Effort effort;
  while (true) {
    const ModelAnswer answer = model.linear().solve({}, effort);
    if (answer.status == ModelStatus::kInfeasible) return kInfinity;
    if (model.add_broken_memory_rows(answer.values) == 0) {
      return model.stages().base_cost + model.from_model(answer.objective);
    }
  }
}

// How many splits there were to be tried.
std::size_t check_splits(const Graph& graph, const testing::Tradeoff& best) {
  StageModel whole(make_stage_problem(graph, false), best.peak);
  Effort effort;
  const ModelAnswer relaxation = whole.linear().solve_relaxation(effort);
  const auto splits =
      find_rerun_branchings(whole, relaxation.values, best_sequence(graph, best.peak), 1e-6);
  for (const RerunBranching& split : splits) {
    StageModel with = whole, without = whole;
    split.keep_best_side(with);
    split.keep_other_side(without);
    EXPECT_NEAR(optimum(std::move(with)), best.cost, 1e-6);
    EXPECT_GE(optimum(std::move(without)), best.cost - 1e-6);
  }
  return splits.size();
}

TEST(RerunBranching, TheBestScheduleIsOnItsSideAndTheOtherHasNoBetterOne) {
  std::size_t splits = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph graph = testing::random_mirrored_graph(random, 4);
    for (const auto& best : testing::frontier_tradeoffs(graph, true)) {
      splits += check_splits(graph, best);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(splits, 10u);
}

TEST(RerunBranching, TheOtherSideIsWhatTheBestSideIsNot) {
  Random random(3);
  const Graph graph = testing::random_mirrored_graph(random, 4);
  StageModel whole(make_stage_problem(graph, false), Bytes{1} << 40);
  std::vector<OpId> again;
  for (OpId op : graph.ops()) {
    if (whole.stages().rerun_until[op] > 0) again.push_back(op);
  }
  ASSERT_FALSE(again.empty());
  const OpId op = again.front();
  const RerunBranching split{.ops = {op}, .best = 1, .relaxed_below = true};
  StageModel once = whole, never = whole;
  split.keep_best_side(once);
  split.keep_other_side(never);
  // With room for everything, only the row makes it run a second time.
  EXPECT_NEAR(optimum(std::move(never)), whole.stages().base_cost, 1e-6);
  EXPECT_GE(optimum(std::move(once)),
            whole.stages().base_cost + whole.stages().rerun_cost[op] - 1e-6);
}

}  // namespace
}  // namespace regen::search
