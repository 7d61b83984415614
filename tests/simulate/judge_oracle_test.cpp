// Four readings of docs/reference/plan-semantics.md, three of them here: on thousands of random
// training steps with random plans the simulator, the validator and the naive interpreter agree,
// and the validator finds every known kind of damage.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "regen/plan/explain.h"
#include "regen/plan/plan_json.h"
#include "regen/plan/validate.h"
#include "regen/simulate/simulate.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/oracles/naive_interpreter.h"
#include "tests/support/plans/damage.h"
#include "tests/support/plans/random_plan.h"

namespace regen {
namespace {

using testing::interpret;
using testing::NaiveResult;

constexpr std::uint64_t kCases = 10'000;
constexpr std::uint64_t kMinDamages = 200;  // of each kind

// Against ops of 0 to 9 units on tensors of up to 20 bytes.
constexpr std::array kLinks{
    Link{.to_host = 4, .to_device = 4, .both = 8},        // full duplex
    Link{.to_host = 3, .to_device = 5, .both = 6},        // joint limit
    Link{.to_host = 7, .to_device = 2, .both = 7},        // as one wire, lopsided
    Link{.to_host = 0.01, .to_device = 0.03, .both = 1},  // very slow
    Link{.to_host = 1e9, .to_device = 1e9, .both = 1e9},  // next to no time
};

struct Case {
  Graph graph;
  Plan plan;
};

// Some walks drop what nothing can bring back: then another graph is tried.
Case random_case(std::uint64_t seed, bool moves) {
  for (Random random(seed);;) {
    Graph graph = testing::random_training_graph(random);
    auto plan = testing::random_plan(graph, random, {.moves = moves});
    if (!plan) continue;
    if (random.chance(0.3)) testing::add_addresses(graph, random, *plan);
    return {std::move(graph), std::move(*plan)};
  }
}

void expect_close(double actual, double expected, const char* what) {
  EXPECT_NEAR(actual, expected, 1e-9 * std::max(1.0, expected)) << what;
}

// Adds to `stalled` if the plan waits for a copy somewhere.
void expect_agreement(const Case& c, const Link& link, int& stalled) {
  const auto simulation = simulate(c.graph, c.plan, {.link = link});
  ASSERT_TRUE(simulation.ok()) << simulation.error().message;
  const NaiveResult naive = interpret(c.graph, c.plan, link);
  EXPECT_EQ(simulation->peak_bytes, naive.peak_bytes);
  EXPECT_EQ(simulation->activation_peak_bytes, naive.activation_peak_bytes);
  EXPECT_EQ(simulation->host_peak_bytes, naive.host_peak_bytes);
  expect_close(simulation->cost, naive.makespan, "makespan");
  expect_close(simulation->stall, naive.stall, "stall");
  stalled += naive.stall > 0 ? 1 : 0;

  const auto validation = validate(c.graph, c.plan);
  ASSERT_TRUE(validation.ok()) << validation.error().message;
  EXPECT_EQ(validation->peak_bytes, naive.peak_bytes);
  EXPECT_EQ(validation->activation_peak_bytes, naive.activation_peak_bytes);
  EXPECT_EQ(validation->host_peak_bytes, naive.host_peak_bytes);
  // With addresses the peak may lie elsewhere than the most live bytes: no common definition.
  if (!c.plan.addresses) {
    EXPECT_EQ(validation->peak_step, simulation->peak_step);
  }
  const ValidationLimits exact{naive.peak_bytes, naive.host_peak_bytes};
  EXPECT_TRUE(validate(c.graph, c.plan, exact).ok());
}

void expect_counts(const Case& c) {
  std::size_t computes = 0;
  Bytes offloaded = 0;
  Bytes fetched = 0;
  for (const Step& step : c.plan.steps) {
    computes += step.kind() == StepKind::kCompute ? 1 : 0;
    if (step.kind() == StepKind::kOffload) offloaded += c.graph.bytes(step.tensor());
    if (step.kind() == StepKind::kFetch) fetched += c.graph.bytes(step.tensor());
  }
  const auto simulation = simulate(c.graph, c.plan, {.link = kLinks[0]});
  ASSERT_TRUE(simulation.ok()) << simulation.error().message;
  EXPECT_EQ(simulation->recomputed, computes - c.graph.num_ops());
  EXPECT_EQ(simulation->offloaded_bytes, offloaded);
  EXPECT_EQ(simulation->fetched_bytes, fetched);
}

TEST(JudgeOracleTest, SimulatorValidatorAndNaiveInterpreterAgree) {
  std::array<int, kLinks.size()> stalled{};
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case c = random_case(seed, /*moves=*/true);
    expect_agreement(c, kLinks[seed % kLinks.size()], stalled[seed % kLinks.size()]);
    expect_counts(c);
    if (HasFailure()) FAIL() << write_plan(c.plan);
  }
  // The plans are not so tame that time would not matter.
  for (int count : stalled) EXPECT_GE(count, 500);
}

TEST(JudgeOracleTest, WithoutMovesNoLinkIsNeededAndNothingStalls) {
  int stalled = 0;
  for (std::uint64_t seed = 0; seed < kCases / 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case c = random_case(seed, /*moves=*/false);
    expect_agreement(c, Link{}, stalled);
    if (HasFailure()) FAIL() << write_plan(c.plan);
  }
  EXPECT_EQ(stalled, 0);
}

TEST(JudgeOracleTest, ExplanationsAddUpAndBoundsHold) {
  for (std::uint64_t seed = 0; seed < kCases / 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case c = random_case(seed, /*moves=*/true);
    const Explanation e = explain(c.graph, c.plan);
    Bytes sum = e.fixed_bytes + e.workspace_bytes + e.unused_bytes;
    for (const LiveTensor& item : e.live) sum += item.bytes;
    EXPECT_EQ(sum, e.peak_bytes);
    EXPECT_GE(e.unused_bytes, 0);
    if (!c.plan.addresses) {
      EXPECT_EQ(e.unused_bytes, 0);
    }
    EXPECT_LE(structural_bound(c.graph).bytes, e.peak_bytes);
    EXPECT_EQ(parse_plan(write_plan(c.plan), "").value(), c.plan);
    if (HasFailure()) FAIL() << write_plan(c.plan);
  }
}

bool holds_any(std::string_view text, std::string_view wanted) {
  while (true) {
    const auto bar = wanted.find('|');
    if (text.find(wanted.substr(0, bar)) != std::string_view::npos) return true;
    if (bar == std::string_view::npos) return false;
    wanted.remove_prefix(bar + 1);
  }
}

TEST(JudgeOracleTest, TheValidatorFindsEveryKindOfDamage) {
  const auto kinds = testing::damage_kinds();
  ASSERT_GE(kinds.size(), 20u);
  std::vector<std::uint64_t> applied(kinds.size(), 0);
  for (std::uint64_t seed = 0; seed < kCases / 2; ++seed) {
    Case c = random_case(seed, /*moves=*/true);
    const testing::Sound sound(c.graph, std::move(c.plan));
    Random random(seed);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const auto damaged = kinds[i].apply(sound, random);
      if (!damaged) continue;
      ++applied[i];
      const auto result = validate(c.graph, damaged->plan, damaged->limits);
      ASSERT_FALSE(result.ok()) << kinds[i].name << ", seed " << seed << "\n"
                                << write_plan(damaged->plan);
      EXPECT_TRUE(holds_any(result.error().message, kinds[i].expected))
          << kinds[i].name << ", seed " << seed << ": " << result.error().message;
    }
  }
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    EXPECT_GE(applied[i], kMinDamages) << kinds[i].name;
    RecordProperty(kinds[i].name, std::to_string(applied[i]));
  }
}

}  // namespace
}  // namespace regen
