// What the evaluator of keep matrices says is what the judge says of the same sequence of ops.
#include "regen/search/local/stage_evaluator.h"

#include <gtest/gtest.h>

#include "regen/base/limit.h"
#include "regen/models/zoo.h"
#include "regen/search/build/sequence.h"
#include "regen/search/local/stage_search.h"
#include "regen/simulate/simulate.h"
#include "tests/support/stage_oracle.h"

namespace regen::search {
namespace {

void expect_judged_alike(const StageProblem& stages, StageEvaluator& evaluator,
                         const Score& score) {
  const Graph& graph = *stages.graph;
  const auto judged = simulate(graph, plan_from_sequence(graph, evaluator.sequence()));
  ASSERT_TRUE(judged.ok()) << judged.error().message;
  EXPECT_EQ(judged->activation_peak_bytes, score.peak);
  EXPECT_EQ(judged->cost, score.cost);
}

TEST(StageEvaluator, AgreesWithTheJudgeOnRandomKeepMatrices) {
  int judged = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Graph graph =
        testing::random_mirrored_graph(random, static_cast<int>(random.between(1, 9)));
    const StageProblem stages = make_stage_problem(graph, random.chance(0.5));
    StageEvaluator evaluator(stages);
    KeepMatrix keep = keep_everything(stages);
    for (ValueId v : IdRange<ValueId>(stages.num_values)) {
      for (std::size_t t = stages.producer[v] + 1; t < stages.num_ops; ++t) {
        if (random.chance(0.3)) keep.clear(t, v);
      }
    }
    const auto score = evaluator.evaluate(keep, 10);
    if (!score) continue;
    ++judged;
    expect_judged_alike(stages, evaluator, *score);
    // Only what the sequence really carries: the cost and the peak are not higher.
    const auto lean = evaluator.evaluate(keep_of_sequence(stages, evaluator.sequence()), 10);
    ASSERT_TRUE(lean.has_value());
    EXPECT_LE(lean->cost, score->cost);
    EXPECT_LE(lean->peak, score->peak);
    // Runs that only served useless runs go one round later, until nothing changes.
    std::vector<OpId> sequence;
    do {
      sequence = evaluator.sequence();
      ASSERT_TRUE(evaluator.evaluate(keep_of_sequence(stages, sequence), 10).has_value());
      ASSERT_LE(evaluator.sequence().size(), sequence.size());
    } while (evaluator.sequence().size() < sequence.size());
    EXPECT_TRUE(evaluator.sequence() == sequence);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(judged, 100);
}

TEST(StageSearch, TheSameWorkGivesTheSameSchedule) {
  const auto graph = zoo_graph("MobileNet", {.batch = 1, .backward = BackwardStyle::kCheckmate});
  ASSERT_TRUE(graph.ok());
  const StageProblem stages = make_stage_problem(*graph, false);
  std::vector<OpId> first;
  for (int attempt = 0; attempt < 2; ++attempt) {
    Effort effort({.work = 5'000'000});
    StageSearch search(stages, 20'000'000, 7, effort);
    ASSERT_TRUE(search.add_start(keep_everything(stages)));
    search.run(1000, 4'000'000, 0);
    EXPECT_LE(search.best_score().peak, 20'000'000);
    const std::vector<OpId> sequence = search.best_sequence();
    if (attempt == 0) first = sequence;
    EXPECT_EQ(first, sequence);
  }
}

}  // namespace
}  // namespace regen::search
