#include "regen/plan/pack/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "regen/base/file.h"
#include "regen/base/random.h"
#include "regen/plan/pack/lifetimes_csv.h"
#include "regen/plan/pack/pack_check.h"
#include "regen/plan/pack/pack_problem.h"
#include "regen/plan/pack/pack_search.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPlenty = 1'000'000'000;

// Packs and has the result judged: whatever the status, the offsets must be a packing.
Packing packed(const std::vector<Lifetime>& lifetimes, const PackOptions& options = {}) {
  const auto packing = pack(lifetimes, options);
  EXPECT_TRUE(packing.ok()) << packing.error().message;
  const Status status =
      check_packing(lifetimes, packing->offsets, packing->height, options.alignment);
  EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_GE(packing->height, packing->lower_bound);
  EXPECT_GE(packing->lower_bound, packing->max_load);
  return *packing;
}

// The slow oracle: in some order, putting each item on top of those before it is optimal.
Bytes lowest_height(const std::vector<Lifetime>& items) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0U);
  Bytes lowest = std::numeric_limits<Bytes>::max();
  do {
    std::vector<Bytes> top(items.size());
    Bytes height = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const Lifetime& item = items[order[k]];
      Bytes offset = 0;
      for (std::size_t j = 0; j < k; ++j) {
        const Lifetime& other = items[order[j]];
        const bool together = item.lower < other.upper && other.lower < item.upper;
        if (together) offset = std::max(offset, top[order[j]]);
      }
      top[order[k]] = offset + item.size;
      height = std::max(height, top[order[k]]);
    }
    lowest = std::min(lowest, height);
  } while (std::ranges::next_permutation(order).found);
  return items.empty() ? 0 : lowest;
}

std::vector<Lifetime> random_lifetimes(Random& random, int count, int times, int sizes) {
  std::vector<Lifetime> items;
  for (int i = 0; i < count; ++i) {
    const std::int64_t lower = random.between(0, times - 1);
    items.push_back({.lower = lower,
                     .upper = random.between(lower + 1, times),
                     .size = random.between(1, sizes)});
  }
  return items;
}

// At most `capacity` alive at any time and nearly always just that: hard to pack for its size.
std::vector<Lifetime> tight_lifetimes(Random& random, std::size_t count, Bytes capacity) {
  std::vector<Lifetime> items;
  std::vector<std::size_t> alive;
  Bytes free = capacity;
  const auto never = static_cast<std::int64_t>(count);
  for (std::int64_t now = 0; items.size() < count; ++now) {
    for (; free > 0 && items.size() < count; free -= items.back().size) {
      alive.push_back(items.size());
      items.push_back({.lower = now, .upper = never, .size = random.between(1, free)});
    }
    for (std::int64_t ends = random.between(1, 2); ends > 0 && !alive.empty(); --ends) {
      std::swap(alive[random.next() % alive.size()], alive.back());
      items[alive.back()].upper = now + 1;
      free += items[alive.back()].size;
      alive.pop_back();
    }
  }
  return items;
}

// Another slow oracle, for more items in little memory: tries every offset of each in turn.
bool fits_somehow(const std::vector<Lifetime>& items, Bytes capacity, std::vector<Bytes>& offsets) {
  const std::size_t k = offsets.size();
  if (k == items.size()) return true;
  for (Bytes offset = 0; offset + items[k].size <= capacity; ++offset) {
    bool free = true;
    for (std::size_t j = 0; j < k && free; ++j) {
      const bool apart = items[j].upper <= items[k].lower || items[k].upper <= items[j].lower;
      free = apart || offsets[j] + items[j].size <= offset || offset + items[k].size <= offsets[j];
    }
    if (!free) continue;
    offsets.push_back(offset);
    if (fits_somehow(items, capacity, offsets)) return true;
    offsets.pop_back();
  }
  return false;
}

bool fits_somehow(const std::vector<Lifetime>& items, Bytes capacity) {
  std::vector<Bytes> offsets;
  return fits_somehow(items, capacity, offsets);
}

// Load 4 at every moment, but the halves of one pair of 2 never line up with the next.
const std::vector<Lifetime> kHarderThanItsLoad{{0, 2, 2}, {0, 1, 2}, {1, 3, 1}, {1, 4, 1},
                                               {2, 3, 1}, {2, 4, 1}, {3, 5, 2}, {4, 5, 2}};

TEST(Pack, NothingNeedsNoMemory) {
  const Packing packing = packed({});
  EXPECT_EQ(packing.status, PackStatus::kPacked);
  EXPECT_EQ(packing.height, 0);
  EXPECT_EQ(packing.ratio(), 1.0);
}

TEST(Pack, LifetimesThatOnlyTouchShareAnAddress) {
  const Packing packing = packed({{0, 4, 8}, {4, 6, 8}, {6, 9, 8}});
  EXPECT_EQ(packing.height, 8);
  EXPECT_EQ(packing.max_load, 8);
}

TEST(Pack, TheExampleInTheHeaderReachesItsLoad) {
  const Packing packing = packed({{0, 4, 2}, {0, 6, 2}, {4, 6, 2}});
  EXPECT_EQ(packing.max_load, 4);
  EXPECT_EQ(packing.height, 4);
  EXPECT_TRUE(packing.optimal());
}

TEST(Pack, SizeZeroLivesAnywhere) {
  const Packing packing = packed({{0, 4, 0}, {0, 4, 5}, {1, 2, 0}});
  EXPECT_EQ(packing.height, 5);
}

TEST(Pack, OffsetsAreAlignedAndSizesRoundedUp) {
  const Packing packing = packed({{0, 4, 3}, {0, 4, 9}, {0, 4, 8}}, {.alignment = 8});
  EXPECT_EQ(packing.max_load, 8 + 16 + 8);
  EXPECT_EQ(packing.height, 32);
}

TEST(Pack, CapacityBelowTheLoadIsRefuted) {
  const Packing packing = packed({{0, 2, 5}, {1, 3, 6}}, {.capacity = 10});
  EXPECT_EQ(packing.status, PackStatus::kInfeasible);
  EXPECT_EQ(packing.lower_bound, 11);
}

TEST(Pack, CapacityThatNeedsNoSearchIsMet) {
  const Packing packing = packed({{0, 2, 5}, {1, 3, 6}}, {.capacity = 1000});
  EXPECT_EQ(packing.status, PackStatus::kPacked);
  EXPECT_LE(packing.height, 1000);
}

TEST(Pack, CapacityNeedNotBeAMultipleOfTheSizes) {
  const std::vector<Lifetime> items{{0, 2, 1024}, {1, 3, 2048}};
  EXPECT_EQ(packed(items, {.capacity = 3071}).status, PackStatus::kInfeasible);
  EXPECT_EQ(packed(items, {.capacity = 3073}).status, PackStatus::kPacked);
}

TEST(Pack, LoadAloneDoesNotDecide) {
  const Packing packing = packed(kHarderThanItsLoad);
  EXPECT_EQ(packing.max_load, 4);
  EXPECT_EQ(packing.height, 5);
  EXPECT_EQ(packing.lower_bound, 5);
  const PackStatus refuted = packed(kHarderThanItsLoad, {.capacity = 4}).status;
  EXPECT_EQ(refuted, PackStatus::kInfeasible);
  const PackStatus unknown = packed(kHarderThanItsLoad, {.capacity = 4, .exact = false}).status;
  EXPECT_EQ(unknown, PackStatus::kLimit);
}

TEST(Pack, TinyInputsAgreeWithTheOracle) {
  Random random(2024);
  for (int round = 0; round < 3000; ++round) {
    const int count = static_cast<int>(random.between(1, 6));
    const auto items = random_lifetimes(random, count, 6, round % 2 == 0 ? 4 : 20);
    const Bytes lowest = lowest_height(items);
    const Packing packing = packed(items, {.limits = {.work = kPlenty}});
    ASSERT_EQ(packing.height, lowest) << "round " << round;
    ASSERT_EQ(packing.lower_bound, lowest) << "round " << round;
    ASSERT_EQ(packed(items, {.capacity = lowest}).status, PackStatus::kPacked);
    ASSERT_EQ(packed(items, {.capacity = lowest - 1}).status, PackStatus::kInfeasible);
  }
}

TEST(Pack, TightInputsAgreeWithTheOtherOracle) {
  Random random(1);
  int above_load = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto items = tight_lifetimes(random, 15, round % 2 == 0 ? 6 : 8);
    const Packing packing = packed(items, {.limits = {.work = kPlenty}});
    ASSERT_TRUE(packing.optimal()) << "round " << round;
    ASSERT_FALSE(fits_somehow(items, packing.height - 1)) << "round " << round;
    above_load += packing.height > packing.max_load;
  }
  EXPECT_GE(above_load, 10) << "the sample must hold inputs that the load does not decide";
}

// The search alone, without a greedy packing that may make it unnecessary.
TEST(PackSearch, FindsWhatThereIsAndRefutesTheRest) {
  Random random(23);
  for (int round = 0; round < 2000; ++round) {
    const auto items = tight_lifetimes(random, 12, 6);
    const bool feasible = fits_somehow(items, 6);
    const PackOptions options{.split = false,
                              .bound = round % 2 == 0,
                              .remember = round % 3 == 0,
                              .decompose = round % 5 == 0,
                              .restart = round % 7 == 0};
    Effort effort;
    const PackProblem problem = make_pack_problem(items, 1, options.split);
    PackSearch search(problem.parts[0], 6 / problem.unit, options, effort);
    const SearchOutcome expected = feasible ? SearchOutcome::kFound : SearchOutcome::kRefuted;
    ASSERT_EQ(search.run(kPlenty), expected) << "round " << round;
    if (!feasible) continue;
    std::vector<Bytes> offsets(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      offsets[problem.parts[0].origin[i]] = search.offsets()[i] * problem.unit;
    }
    const Status status = check_packing(items, offsets, 6);
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
}

TEST(Pack, EveryTechniqueCanBeSwitchedOff) {
  Random random(7);
  for (int round = 0; round < 1280; ++round) {
    const auto items = random_lifetimes(random, 6, 6, 9);
    const auto off = [&](int bit) { return (round >> bit & 1) == 0; };
    const PackOptions options{.limits = {.work = kPlenty},
                              .split = off(0),
                              .improve = off(1),
                              .bound = off(2),
                              .remember = off(3),
                              .decompose = off(4),
                              .restart = off(5)};
    ASSERT_EQ(packed(items, options).height, lowest_height(items)) << "round " << round;
  }
}

TEST(Pack, FifteenItemsAreRefutedJustBelowTheirLowestHeight) {
  Random random(11);
  for (int round = 0; round < 60; ++round) {
    const auto items = random_lifetimes(random, 15, 10, 30);
    const Packing packing = packed(items, {.limits = {.work = kPlenty}});
    ASSERT_TRUE(packing.optimal());
    const Packing below = packed(items, {.capacity = packing.height - 1, .improve = false});
    EXPECT_EQ(below.status, PackStatus::kInfeasible);
  }
}

TEST(Pack, PartsApartInTimeAreSolvedOneByOne) {
  std::vector<Lifetime> items;
  Random random(5);
  for (int part = 0; part < 50; ++part) {
    for (Lifetime item : random_lifetimes(random, 6, 6, 9)) {
      item.lower += 10 * part;
      item.upper += 10 * part;
      items.push_back(item);
    }
  }
  const Packing packing = packed(items);
  EXPECT_TRUE(packing.optimal());
  EXPECT_LT(packing.work, 10'000);
}

TEST(Pack, SameInputSamePacking) {
  Random random(3);
  const auto items = random_lifetimes(random, 80, 40, 100);
  const PackOptions options{.limits = {.work = 50'000}};
  const Packing first = packed(items, options);
  const Packing second = packed(items, options);
  EXPECT_EQ(first.offsets, second.offsets);
  EXPECT_EQ(first.work, second.work);
}

TEST(Pack, StarvedOfWorkItSaysSoAndStillPacks) {
  Random random(17);
  const auto items = random_lifetimes(random, 60, 20, 50);
  const Bytes load = packed(items, {.exact = false}).max_load;
  for (std::int64_t work = 0; work < 3000; work += 100) {
    const Packing packing = packed(items, {.capacity = load, .limits = {.work = work}});
    if (packing.height > load) {
      EXPECT_NE(packing.status, PackStatus::kPacked) << "work " << work;
    }
  }
}

TEST(Pack, RefusesWhatMeansNothing) {
  const auto message = [](std::vector<Lifetime> items, const PackOptions& options = {}) {
    const auto packing = pack(items, options);
    return packing.ok() ? std::string("accepted") : packing.error().message;
  };
  EXPECT_EQ(message({{0, 1, 1}, {5, 5, 1}}),
            "lifetime 1: upper 5, expected more than lower, which is 5");
  EXPECT_EQ(message({{0, 1, -2}}), "lifetime 0: size -2, expected 0 to 9007199254740992");
  EXPECT_EQ(message({}, {.alignment = 0}), "alignment 0, expected 1 to 9007199254740992");
  EXPECT_EQ(message({}, {.capacity = -1}), "capacity -1, expected 0 or more");
  const std::vector<Lifetime> many(1000, {0, 1, kMaxBytes});
  EXPECT_THAT(message(many), HasSubstr("expected a smaller total"));
}

TEST(Pack, TimesMayBeAnyNumbers) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();
  const Packing packing = packed({{kLowest, kHighest, 3}, {kLowest, 0, 4}, {0, kHighest, 4}});
  EXPECT_EQ(packing.height, 7);
}

// Activations that wait for their backward op, gradients, and a workspace for each op.
std::vector<Lifetime> training_step(int layers) {
  Random random(1);
  std::vector<Lifetime> items;
  for (int layer = 0; layer < layers; ++layer) {
    const std::int64_t back = 2 * layers - 1 - layer;
    items.push_back({layer, back + 1, random.between(1 << 20, 1 << 24)});
    items.push_back({back, back + 2, random.between(1 << 20, 1 << 24)});
    items.push_back({back, 2 * layers + 1, random.between(1 << 10, 1 << 20)});
    items.push_back({layer, layer + 1, random.between(1 << 10, 1 << 26)});
    items.push_back({back, back + 1, random.between(1 << 10, 1 << 26)});
  }
  return items;
}

TEST(Pack, TrainingStepsReachTheirLoadAtOnce) {
  for (const int layers : {10, 100, 1000}) {
    const Packing packing = packed(training_step(layers));
    EXPECT_LE(packing.ratio(), 1.02) << layers << " layers";
    EXPECT_LT(packing.work, 100 * layers) << layers << " layers";
  }
}

std::string reference_folder() {
  if (const char* folder = std::getenv("REGEN_REFERENCE_DATA")) return folder;
  const auto repository = std::filesystem::path(__FILE__).parent_path() / "../..";
  return (repository / "../shared/reference/data").string();
}

class MiniMalloc : public ::testing::TestWithParam<char> {};

TEST_P(MiniMalloc, FitsIntoOneMebibyte) {
  const std::string path =
      reference_folder() + "/minimalloc/" + std::string(1, GetParam()) + ".1048576.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no reference data at " << path;
  const auto text = read_file(path);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto table = parse_lifetimes_csv(*text, path);
  ASSERT_TRUE(table.ok()) << table.error().message;
  const Packing packing = packed(table->lifetimes, {.capacity = 1 << 20});
  EXPECT_EQ(packing.status, PackStatus::kPacked);
  EXPECT_LE(packing.height, 1 << 20);
  EXPECT_LT(packing.work, 200'000);
}

INSTANTIATE_TEST_SUITE_P(Instances, MiniMalloc, ::testing::Values('A', 'B', 'C', 'D', 'E'));

TEST(CheckPacking, NamesTheTwoThatMeet) {
  const std::vector<Lifetime> items{{0, 4, 8}, {3, 5, 8}};
  EXPECT_TRUE(check_packing(items, std::vector<Bytes>{0, 8}, 16).ok());
  EXPECT_EQ(check_packing(items, std::vector<Bytes>{0, 7}, 16).error().message,
            "lifetime 1 (time 3 to 5, bytes 7 to 15) meets lifetime 0 (time 0 to 4, bytes 0 to "
            "8), expected no shared bytes");
}

TEST(CheckPacking, RefusesOffsetsOutsideOrMisalignedOrMissing) {
  const std::vector<Lifetime> items{{0, 4, 8}};
  EXPECT_THAT(check_packing(items, std::vector<Bytes>{1}, 8).error().message,
              HasSubstr("leaves the memory"));
  EXPECT_THAT(check_packing(items, std::vector<Bytes>{-1}, 8).error().message,
              HasSubstr("leaves the memory"));
  EXPECT_THAT(check_packing(items, std::vector<Bytes>{4}, 16, 8).error().message,
              HasSubstr("expected a multiple of 8"));
  EXPECT_THAT(check_packing(items, std::vector<Bytes>{}, 16).error().message,
              HasSubstr("has 0 offsets"));
}

}  // namespace
}  // namespace regen
