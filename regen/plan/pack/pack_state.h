// A half-built packing during the search: some items placed, bottom up, the rest open.
//
//   height                  The floor of a section is where the next item over it can begin
//     3 | . . . d d         at the earliest: here 2 2 2 4 4, though nothing lies in section 2
//     2 | . . . d d         above 1, if every open item that covers it needs section 1 too.
//     1 | a a . b b         Open items that begin lowest in a dip of the floors rest flat on
//     0 | a a c b b         it, and that is where the search goes on.
//       +-----------> section
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "regen/plan/pack/pack_problem.h"

namespace regen {

// Open items, by first section, and the sections [first, last) that hold all of them.
struct PackScope {
  std::int32_t first = 0;
  std::int32_t last = 0;
  std::vector<std::uint32_t> items;  // may still name some that were placed since
};

class PackState {
 public:
  // `part` must outlive the state. With `bound`, a section is also refused when its open items
  // cannot be stacked above their own lowest places.
  PackState(const PackPart& part, std::int64_t capacity, bool bound);

  std::int64_t floor(std::int32_t section) const { return floor_[index(section)]; }
  // Sum of the open items over a section.
  std::int64_t left(std::int32_t section) const { return left_[index(section)]; }
  std::int64_t slack(std::int32_t section) const {
    return capacity_ - floor(section) - left(section);
  }
  // How often the section was where a branch failed, plus one.
  double weight(std::int32_t section) const { return weight_[index(section)]; }
  bool open(std::uint32_t item) const { return open_[item] != 0; }
  // Where an open item can begin at the earliest, or where a placed one does begin.
  std::int64_t lowest(std::uint32_t item) const { return lowest_[item]; }
  std::span<const std::uint32_t> items_over(std::int32_t section) const {
    return over_[index(section)];
  }
  // The capacity that the mildest failure so far would have needed: every search that failed
  // everywhere fails for less than this too.
  std::int64_t next_capacity() const { return next_capacity_; }

  // Elementary steps taken so far, each of about a nanosecond.
  std::int64_t steps() const { return steps_; }

  // Each changes the state and draws the conclusions within `scope`; false: this cannot be
  // completed. Either way the way back is undo().
  bool settle(const PackScope& scope) { return settle(scope, scope.first, scope.last); }
  bool place(const PackScope& scope, std::uint32_t item);
  bool raise(const PackScope& scope, std::int32_t section, std::int64_t floor);

  std::size_t mark() const { return log_.size(); }
  void undo(std::size_t mark);

 private:
  static std::size_t index(std::int32_t section) { return static_cast<std::size_t>(section); }

  void set(std::int64_t& cell, std::int64_t value);
  bool settle(const PackScope& scope, std::int32_t first, std::int32_t last);
  void lift_items(const PackScope& scope, std::int32_t& first, std::int32_t& last);
  bool lift_floors(std::int32_t& first, std::int32_t& last);
  bool stacks_fit(const PackScope& scope, std::int32_t first, std::int32_t last);
  bool fits(std::int32_t section, std::int64_t needed);

  const PackPart& part_;
  std::int64_t capacity_;
  bool bound_;
  std::vector<std::int64_t> floor_;   // by section
  std::vector<std::int64_t> left_;    // by section
  std::vector<std::int64_t> lowest_;  // by item
  std::vector<std::int64_t> open_;    // by item
  std::vector<std::vector<std::uint32_t>> over_;
  std::vector<double> weight_;
  std::int64_t next_capacity_;
  std::vector<std::pair<std::int64_t*, std::int64_t>> log_;       // cell, value before
  std::vector<std::pair<std::int64_t, std::uint32_t>> stacking_;  // scratch of stacks_fit
  std::vector<std::int64_t> top_;  // scratch of stacks_fit, by section
  std::int64_t steps_ = 0;
};

}  // namespace regen
