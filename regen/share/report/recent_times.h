// How long something took in the last one to two minutes, as percentiles: a histogram of fixed size.
// Adding a time counts one up. The values that come out are off by at most one part in 32, or one
// microsecond.
//
// Two histograms are kept, each of one period. The older one goes when the present one is a period
// old, so that what is reported forgets a job's past.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "regen/share/protocol/job.h"

namespace regen::share {

// A percentile is the least value that so many per cent of all do not exceed.
struct Percentiles {
  Nanoseconds p50 = 0;
  Nanoseconds p95 = 0;

  bool operator==(const Percentiles&) const = default;
};

class RecentTimes {
 public:
  static constexpr Nanoseconds kPeriod = 60'000'000'000;
  // Octaves of 16 steps each, above the first 32 steps of about a microsecond; to 4.9 hours.
  static constexpr std::size_t kBuckets = 496;
  // Once there is a first time.
  static constexpr std::size_t kBytes = 2 * kBuckets * sizeof(std::uint32_t);

  // `now` does not go back.
  void add(Nanoseconds time, Nanoseconds now);
  // Nothing where there was none in this time.
  std::optional<Percentiles> percentiles(Nanoseconds now) const;
  std::int64_t count(Nanoseconds now) const;

 private:
  using Histogram = std::vector<std::uint32_t>;

  void turn_over(Nanoseconds now);
  // How many periods ago the present histogram began; 2 stands for longer ones too.
  std::int64_t age(Nanoseconds now) const;
  Nanoseconds percentile(std::int64_t rank, bool with_before) const;

  Histogram present_ = {};  // both are empty before the first time
  Histogram before_ = {};
  Nanoseconds began_ = 0;  // the present one
};

}  // namespace regen::share
