#include "regen/search/local/stage_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "regen/base/random.h"

namespace regen::search {
namespace {

TEST(StageBytes, IsWhatGoingThroughAllOpsGives) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    std::vector<Bytes> plain(static_cast<std::size_t>(random.between(1, 40)));
    for (Bytes& bytes : plain) bytes = random.between(0, 100);
    StageBytes stages(plain);
    for (int i = 0; i < 50; ++i) {
      const auto size = static_cast<std::int64_t>(plain.size());
      const auto first = static_cast<std::size_t>(random.between(0, size - 1));
      const auto last =
          static_cast<std::size_t>(random.between(static_cast<std::int64_t>(first) + 1, size));
      const auto range = std::span(plain).subspan(first, last - first);
      EXPECT_EQ(stages.most(first, last), std::ranges::max(range));
      const Bytes change = random.between(-50, 50);
      for (Bytes& bytes : range) bytes += change;
      stages.add(first, last, change);
      const auto most = std::ranges::max_element(plain);
      EXPECT_EQ(stages.peak().first, *most);
      EXPECT_EQ(stages.peak().second, most - plain.begin());
    }
  }
}

}  // namespace
}  // namespace regen::search
