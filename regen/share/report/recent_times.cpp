#include "regen/share/report/recent_times.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace regen::share {
namespace {

constexpr int kUnitBits = 10;     // 1.024 microseconds
constexpr int kPerOctave = 16;    // so that the middle of a bucket is off by at most 1/32
constexpr int kFirstBits = 5;     // of the 32 first buckets, of one unit each
constexpr int kMostOctaves = 29;  // what is longer counts as the longest
constexpr std::uint64_t kMostUnits = (std::uint64_t{2 * kPerOctave} << kMostOctaves) - 1;
static_assert(kPerOctave * kMostOctaves + 2 * kPerOctave == RecentTimes::kBuckets);

std::size_t bucket_of(Nanoseconds time) {
  const auto whole = static_cast<std::uint64_t>(std::max<Nanoseconds>(0, time)) >> kUnitBits;
  const std::uint64_t units = std::min(whole, kMostUnits);
  const int octave = std::max(0, static_cast<int>(std::bit_width(units)) - kFirstBits);
  return static_cast<std::size_t>(kPerOctave * octave) + static_cast<std::size_t>(units >> octave);
}

// The middle of its times; 0 for those that are too short to tell from none.
Nanoseconds time_of(std::size_t bucket) {
  if (bucket == 0) return 0;
  const std::size_t octave = bucket < 2 * kPerOctave ? 0 : bucket / kPerOctave - 1;
  const auto first = static_cast<Nanoseconds>(bucket - kPerOctave * octave) << octave;
  return (first << kUnitBits) + (Nanoseconds{1} << (octave + kUnitBits - 1));
}

std::int64_t sum(const std::vector<std::uint32_t>& histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), std::int64_t{0});
}

}  // namespace

std::int64_t RecentTimes::age(Nanoseconds now) const {
  return std::clamp<std::int64_t>((now - began_) / kPeriod, 0, 2);
}

void RecentTimes::turn_over(Nanoseconds now) {
  if (present_.empty()) {
    present_.assign(kBuckets, 0);
    before_.assign(kBuckets, 0);
    began_ = now;
    return;
  }
  const std::int64_t periods = age(now);
  if (periods == 0) return;
  std::swap(present_, before_);
  std::fill(present_.begin(), present_.end(), 0);
  if (periods > 1) std::fill(before_.begin(), before_.end(), 0);
  began_ = periods > 1 ? now : began_ + kPeriod;
}

void RecentTimes::add(Nanoseconds time, Nanoseconds now) {
  turn_over(now);
  ++present_[bucket_of(time)];
}

std::int64_t RecentTimes::count(Nanoseconds now) const {
  const std::int64_t periods = age(now);
  return (periods < 2 ? sum(present_) : 0) + (periods < 1 ? sum(before_) : 0);
}

Nanoseconds RecentTimes::percentile(std::int64_t rank, bool with_before) const {
  std::int64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += present_[bucket] + (with_before ? before_[bucket] : 0);
    if (seen >= rank) return time_of(bucket);
  }
  return time_of(kBuckets - 1);
}

std::optional<Percentiles> RecentTimes::percentiles(Nanoseconds now) const {
  const std::int64_t all = count(now);
  if (all == 0) return std::nullopt;
  const bool with_before = age(now) < 1;
  const auto rank = [all](std::int64_t part) { return (all * part + 99) / 100; };
  return Percentiles{.p50 = percentile(rank(50), with_before),
                     .p95 = percentile(rank(95), with_before)};
}

}  // namespace regen::share
