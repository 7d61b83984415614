#include "regen/search/heuristics/staircase.h"

#include <algorithm>
#include <cmath>

namespace regen::search {
namespace {

constexpr Bytes kNever = std::numeric_limits<Bytes>::max() / 4;

// Stands for an absent part: costs nothing and is always possible.
const Staircase& no_stairs() {
  static const Staircase kStairs{{std::numeric_limits<Bytes>::min() / 4, 0.0}};
  return kStairs;
}

// One part of a sum, from left to right.
class Walker {
 public:
  Walker(const Staircase* stairs, Bytes held, Bytes from) : held_(held) {
    const Staircase& all = stairs == nullptr ? no_stairs() : *stairs;
    end_ = all.data() + all.size();
    at_ = std::upper_bound(all.data(), end_, from - held,
                           [](Bytes bytes, const Corner& c) { return bytes < c.bytes; }) -
          1;
  }
  double cost() const { return at_->cost; }
  // Where the next corner lies.
  Bytes next() const { return at_ + 1 == end_ ? kNever : at_[1].bytes + held_; }
  void advance() { ++at_; }

 private:
  const Corner* at_;
  const Corner* end_;
  Bytes held_;
};

// From how many bytes on the part costs at most `most`.
Bytes bytes_for(const Staircase* stairs, Bytes held, double most) {
  if (stairs == nullptr) return 0;
  const auto found = std::ranges::partition_point(
      *stairs, [&](const Corner& corner) { return corner.cost > most; });
  return found == stairs->end() ? kNever : found->bytes + held;
}

double part_cost(const Staircase* stairs, Bytes bytes) {
  return stairs == nullptr ? 0.0 : cost_at(*stairs, bytes);
}

}  // namespace

double cost_at(const Staircase& stairs, Bytes bytes) {
  const auto above = std::ranges::upper_bound(stairs, bytes, {}, &Corner::bytes);
  return above == stairs.begin() ? kImpossible : std::prev(above)->cost;
}

double cost_at(const StairSum& sum, Bytes bytes) {
  if (bytes < sum.bytes) return kImpossible;
  return sum.cost + part_cost(sum.first, bytes - sum.first_held) +
         part_cost(sum.second, bytes - sum.second_held);
}

Bytes least_bytes(const StairSum& sum) {
  Bytes least = sum.bytes;
  for (const auto& [stairs, held] :
       {std::pair(sum.first, sum.first_held), std::pair(sum.second, sum.second_held)}) {
    if (stairs == nullptr) continue;
    if (stairs->empty()) return kNever;
    least = std::max(least, stairs->front().bytes + held);
  }
  return least;
}

std::size_t StairMinimum::add(const StairSum& sum) {
  Bytes from = least_bytes(sum);
  if (from > budget_) return 1;
  const double lowest = cost_at(sum, budget_);
  if (!may_improve(from, lowest)) return 1;
  // Each part at its cheapest says how cheap the other one has to be.
  const double first = part_cost(sum.first, budget_ - sum.first_held);
  const double second = part_cost(sum.second, budget_ - sum.second_held);
  from = std::max({from, bytes_for(sum.first, sum.first_held, most_ - sum.cost - second),
                   bytes_for(sum.second, sum.second_held, most_ - sum.cost - first)});
  // Where the others reach the lowest cost of this one, it is of no more use.
  const Bytes until = std::min(budget_, bytes_for(&best_, 0, lowest) - 1);
  const std::size_t steps = list_improvements(sum, from, until);
  if (added_.empty()) return steps;
  merge();
  return steps + best_.size();
}

std::size_t StairMinimum::list_improvements(const StairSum& sum, Bytes from, Bytes until) {
  added_.clear();
  if (from > until) return 1;
  Walker first(sum.first, sum.first_held, from);
  Walker second(sum.second, sum.second_held, from);
  std::size_t steps = 0;
  std::size_t known = 0;  // corners of best_ at or before the present bytes
  double to_beat = std::nextafter(most_, kImpossible);
  for (Bytes bytes = from; bytes <= until; ++steps) {
    const double cost = sum.cost + first.cost() + second.cost();
    while (known < best_.size() && best_[known].bytes <= bytes) {
      to_beat = std::min(to_beat, best_[known++].cost);
    }
    if (cost < to_beat) added_.push_back({bytes, cost});
    const Bytes next_first = first.next();
    const Bytes next_second = second.next();
    bytes = std::min(next_first, next_second);
    if (next_first == bytes) first.advance();
    if (next_second == bytes) second.advance();
  }
  return steps;
}

void StairMinimum::merge() {
  merged_.clear();
  double least = kImpossible;
  const auto take = [&](const Corner& corner) {
    if (corner.cost >= least) return;
    least = corner.cost;
    if (!merged_.empty() && merged_.back().bytes == corner.bytes) merged_.pop_back();
    merged_.push_back(corner);
  };
  auto old = best_.begin();
  for (const Corner& corner : added_) {
    while (old != best_.end() && old->bytes <= corner.bytes) take(*old++);
    take(corner);
  }
  while (old != best_.end()) take(*old++);
  best_.swap(merged_);
}

void thin(Staircase& stairs, std::size_t max_corners) {
  if (stairs.size() <= max_corners) return;
  const std::size_t last = stairs.size() - 1;
  for (std::size_t i = 0; i < max_corners; ++i) {
    stairs[i] = stairs[i * last / (max_corners - 1)];
  }
  stairs.resize(max_corners);
}

}  // namespace regen::search
