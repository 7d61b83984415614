#include "regen/planners/staircase.h"

#include <algorithm>

namespace regen {
namespace {

constexpr Bytes kNever = std::numeric_limits<Bytes>::max() / 4;

// The part of a sum that is one staircase, from left to right.
class Walker {
 public:
  Walker(const Staircase* stairs, Bytes held, Bytes from) : stairs_(stairs), held_(held) {
    if (stairs_ != nullptr)
      while (next() <= from) ++at_;
  }
  double cost() const { return stairs_ == nullptr ? 0.0 : (*stairs_)[at_].cost; }
  // Where the next corner lies.
  Bytes next() const {
    if (stairs_ == nullptr || at_ + 1 >= stairs_->size()) return kNever;
    return (*stairs_)[at_ + 1].bytes + held_;
  }
  void go_to(Bytes bytes) {
    if (next() <= bytes) ++at_;
  }

 private:
  const Staircase* stairs_;
  Bytes held_;
  std::size_t at_ = 0;
};

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

std::size_t StairMinimum::add(const StairSum& sum, double most) {
  const Bytes from = least_bytes(sum);
  if (from > budget_) return 1;
  const double lowest = cost_at(sum, budget_);
  if (lowest > most || cost_at(best_, from) <= lowest) return 1;
  list_corners(sum, from);
  merge();
  return added_.size() + best_.size();
}

void StairMinimum::list_corners(const StairSum& sum, Bytes from) {
  Walker first(sum.first, sum.first_held, from);
  Walker second(sum.second, sum.second_held, from);
  added_.clear();
  for (Bytes bytes = from; bytes <= budget_; bytes = std::min(first.next(), second.next())) {
    first.go_to(bytes);
    second.go_to(bytes);
    added_.push_back({bytes, sum.cost + first.cost() + second.cost()});
  }
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

}  // namespace regen
