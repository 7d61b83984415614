#include "regen/plan/pack/pack_state.h"

#include <algorithm>
#include <limits>

namespace regen {

PackState::PackState(const PackPart& part, std::int64_t capacity, bool bound)
    : part_(part),
      capacity_(capacity),
      bound_(bound),
      floor_(index(part.sections)),
      left_(section_loads(part)),
      lowest_(part.items.size()),
      open_(part.items.size(), 1),
      over_(index(part.sections)),
      weight_(index(part.sections), 1.0),
      next_capacity_(std::numeric_limits<std::int64_t>::max()),
      top_(index(part.sections)) {
  for (std::uint32_t i = 0; i < part.items.size(); ++i) {
    for (std::int32_t s = part.items[i].first; s < part.items[i].last; ++s) {
      over_[index(s)].push_back(i);
    }
  }
}

bool PackState::place(const PackScope& scope, std::uint32_t item) {
  const PackItem& placed = part_.items[item];
  set(open_[item], 0);
  for (std::int32_t s = placed.first; s < placed.last; ++s) {
    set(floor_[index(s)], lowest_[item] + placed.size);
    set(left_[index(s)], left(s) - placed.size);
  }
  return settle(scope, placed.first, placed.last);
}

bool PackState::raise(const PackScope& scope, std::int32_t section, std::int64_t floor) {
  set(floor_[index(section)], floor);
  return fits(section, floor + left(section)) && settle(scope, section, section + 1);
}

void PackState::undo(std::size_t mark) {
  for (; log_.size() > mark; log_.pop_back()) *log_.back().first = log_.back().second;
}

void PackState::set(std::int64_t& cell, std::int64_t value) {
  log_.emplace_back(&cell, cell);
  cell = value;
}

// The floors of sections [first, last) have changed: lifts items to the floors under them and
// floors to the lowest item over them, in turn, until nothing moves.
bool PackState::settle(const PackScope& scope, std::int32_t first, std::int32_t last) {
  std::int32_t touched_first = first;
  std::int32_t touched_last = last;
  while (first < last) {
    lift_items(scope, first, last);
    touched_first = std::min(touched_first, first);
    touched_last = std::max(touched_last, last);
    if (!lift_floors(first, last)) return false;
  }
  return !bound_ || stacks_fit(scope, touched_first, touched_last);
}

// Widens the range to the sections of the items that were lifted.
void PackState::lift_items(const PackScope& scope, std::int32_t& first, std::int32_t& last) {
  const std::int32_t from = first;
  const std::int32_t to = last;
  for (const std::uint32_t i : scope.items) {
    const PackItem& item = part_.items[i];
    if (item.first >= to) break;
    if (item.last <= from || !open(i)) continue;
    const auto begin = floor_.begin();
    const std::int64_t lowest = *std::max_element(begin + item.first, begin + item.last);
    steps_ += item.length();
    if (lowest <= lowest_[i]) continue;
    set(lowest_[i], lowest);
    first = std::min(first, item.first);
    last = std::max(last, item.last);
  }
}

// Narrows the range to the floors that were lifted.
bool PackState::lift_floors(std::int32_t& first, std::int32_t& last) {
  const std::int32_t from = first;
  const std::int32_t to = last;
  first = to;
  last = from;
  for (std::int32_t s = from; s < to; ++s) {
    if (left(s) == 0) continue;
    std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
    for (const std::uint32_t i : items_over(s)) {
      if (open(i)) lowest = std::min(lowest, lowest_[i]);
    }
    steps_ += static_cast<std::int64_t>(items_over(s).size());
    if (lowest > floor(s)) {
      set(floor_[index(s)], lowest);
      first = std::min(first, s);
      last = s + 1;
    }
    if (!fits(s, floor(s) + left(s))) return false;
  }
  return true;
}

// Stacks the open items over each of the sections in the order of their lowest places, which
// no other order can beat in height.
bool PackState::stacks_fit(const PackScope& scope, std::int32_t first, std::int32_t last) {
  stacking_.clear();
  for (const std::uint32_t i : scope.items) {
    const PackItem& item = part_.items[i];
    if (item.first >= last) break;
    if (item.last > first && open(i)) stacking_.emplace_back(lowest_[i], i);
  }
  std::ranges::sort(stacking_);
  std::fill(top_.begin() + first, top_.begin() + last, 0);
  for (const auto& [lowest, i] : stacking_) {
    const PackItem& item = part_.items[i];
    const std::int32_t end = std::min(item.last, last);
    for (std::int32_t s = std::max(item.first, first); s < end; ++s) {
      top_[index(s)] = std::max(top_[index(s)], lowest) + item.size;
    }
    steps_ += item.length();
  }
  for (std::int32_t s = first; s < last; ++s) {
    if (!fits(s, top_[index(s)])) return false;
  }
  return true;
}

bool PackState::fits(std::int32_t section, std::int64_t needed) {
  if (needed <= capacity_) return true;
  weight_[index(section)] += 1;
  next_capacity_ = std::min(next_capacity_, needed);
  return false;
}

}  // namespace regen
