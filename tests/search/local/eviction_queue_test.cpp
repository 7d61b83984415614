#include "regen/search/local/eviction_queue.h"

#include <gtest/gtest.h>

#include "regen/base/random.h"

namespace regen::search {
namespace {

struct Candidate {
  double score = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  bool there = true;
};

std::optional<std::uint32_t> lowest_at(const std::vector<Candidate>& all, std::size_t stage) {
  std::optional<std::uint32_t> best;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const Candidate& one = all[i];
    if (!one.there || stage < one.first || stage >= one.last) continue;
    if (!best || one.score < all[*best].score) best = i;
  }
  return best;
}

TEST(EvictionQueue, TakesTheLowestScoreThatCrossesAStage) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const auto stages = static_cast<std::size_t>(random.between(1, 30));
    std::vector<Candidate> all(static_cast<std::size_t>(random.between(1, 30)));
    EvictionQueue queue(stages, all.size());
    const auto add = [&](std::uint32_t i) {
      all[i].score = random.real();
      all[i].there = true;
      queue.add({all[i].score, i}, all[i].first, all[i].last);
    };
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      all[i].first = static_cast<std::size_t>(random.between(0, static_cast<int>(stages) - 1));
      all[i].last = static_cast<std::size_t>(
          random.between(static_cast<int>(all[i].first) + 1, static_cast<int>(stages)));
      add(i);
    }
    for (int question = 0; question < 60; ++question) {
      const auto stage = static_cast<std::size_t>(random.between(0, static_cast<int>(stages) - 1));
      const auto expected = lowest_at(all, stage);
      const auto taken = queue.take(stage);
      ASSERT_EQ(taken.has_value(), expected.has_value());
      if (!taken) continue;
      ASSERT_EQ(taken->interval, *expected);
      all[taken->interval].there = false;
      if (random.chance(0.3)) add(taken->interval);  // its price has risen, say
    }
  }
}

}  // namespace
}  // namespace regen::search
