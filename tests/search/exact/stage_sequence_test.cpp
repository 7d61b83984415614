// The sequence that realises what each stage begins with.
#include "regen/search/exact/stage_sequence.h"

#include <gtest/gtest.h>

#include "regen/base/random.h"
#include "regen/search/build/sequence.h"
#include "regen/simulate/simulate.h"
#include "tests/support/oracles/stage_oracle.h"

namespace regen::search {
namespace {

using Rows = std::vector<IdVector<ValueId, char>>;  // by stage

Rows random_rows(const StageProblem& stages, Random& random) {
  Rows rows(stages.num_ops + 1, IdVector<ValueId, char>(stages.num_values, 0));
  for (ValueId v : IdRange<ValueId>(stages.num_values)) {
    for (std::size_t t = stages.producer[v] + 1; t <= stages.useful_until[v]; ++t) {
      rows[t][v] = random.chance(0.6) || (stages.output[v] && t == stages.num_ops);
    }
  }
  return rows;
}

// Replays the sequence: each op finds what it reads among what its stage begins with and what ran
// before it in the stage, and the next stage finds what it begins with.
void expect_realised(const StageProblem& stages, const Rows& rows,
                     const std::vector<OpId>& sequence) {
  std::size_t position = 0;
  for (std::size_t stage = 0; stage < stages.num_ops; ++stage) {
    IdVector<ValueId, char> here = rows[stage];
    for (bool first = false; !first; ++position) {
      ASSERT_LT(position, sequence.size());
      const OpId op = sequence[position];
      first = op.index() == stage;
      EXPECT_TRUE(first || stages.may_run_again(op, stage));
      for (ValueId v : stages.reads[op]) EXPECT_TRUE(here[v]);
      for (ValueId v : stages.makes[op]) here[v] = 1;
    }
    for (ValueId v : IdRange<ValueId>(stages.num_values)) {
      EXPECT_LE(rows[stage + 1][v], here[v]);
    }
  }
  EXPECT_EQ(position, sequence.size());
}

TEST(StageSequence, MakesWhatEachStageBeginsWith) {
  int realised = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Graph graph =
        testing::random_mirrored_graph(random, static_cast<int>(random.between(1, 9)));
    const StageProblem stages = make_stage_problem(graph, random.chance(0.5));
    const Rows rows = random_rows(stages, random);
    const auto sequence = sequence_of_stages(
        stages, [&](std::size_t stage, ValueId v) { return rows[stage][v] != 0; });
    if (!sequence) continue;
    ++realised;
    expect_realised(stages, rows, *sequence);
    const auto judged = simulate(graph, plan_from_sequence(graph, *sequence));
    ASSERT_TRUE(judged.ok()) << judged.error().message;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(realised, 100);
}

}  // namespace
}  // namespace regen::search
