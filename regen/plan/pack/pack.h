// Static addresses for tensors whose lifetimes are known beforehand.
//
// Every lifetime is a rectangle: its place in time is given, its place in memory is
// wanted. Three lifetimes, and one packing of height 4, equal to the highest load:
//
//   offset                       lower upper size
//     3 | a a a a c c         a    0     4    2
//     2 | a a a a c c         b    0     6    2
//     1 | b b b b b b         c    4     6    2
//     0 | b b b b b b
//       +-------------> time
//
// The highest load is the largest number of bytes alive at once; no packing is lower,
// and some inputs have none that reaches it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "regen/base/limit.h"
#include "regen/base/result.h"
#include "regen/base/units.h"

namespace regen {

struct Lifetime {
  std::int64_t lower = 0;  // first moment of life
  std::int64_t upper = 0;  // first moment after it; greater than lower
  Bytes size = 0;

  bool operator==(const Lifetime&) const = default;
};

struct PackOptions {
  // Height to stay within; without one the height is made small, and the search ends when it
  // is proven smallest or a limit is reached.
  std::optional<Bytes> capacity = std::nullopt;
  // Every offset is a multiple of it, and every size counts rounded up to it.
  Bytes alignment = 1;
  // One unit of work is about a microsecond. The default suits a planner that packs its result;
  // a hard instance with a capacity may deserve more.
  Limits limits = {.work = 1'000'000};

  // Techniques, each of which can be switched off.
  bool split = true;      // sections of time that no lifetime crosses are packed on their own
  bool improve = true;    // repeat the greedy packing with what is in the way moved forward
  bool exact = true;      // search systematically where greedy packings miss the bound
  bool bound = true;      // search: refuse where open items cannot be stacked in one section
  bool remember = true;   // search: leave states alone that were refuted before
  bool decompose = true;  // search: parts that fall apart under way are solved one by one
  bool restart = true;    // search: begin again with other preferences
};

enum class PackStatus {
  kPacked,      // within the capacity, or there is none
  kInfeasible,  // proven: no packing stays within the capacity
  kLimit,       // a limit was reached before the capacity was met or refuted
};

struct Packing {
  PackStatus status = PackStatus::kPacked;
  // One for each lifetime, in the given order. Always a valid packing, whatever the status;
  // only with kPacked is it sure to stay within the capacity.
  std::vector<Bytes> offsets;
  Bytes height = 0;       // highest end of a lifetime in memory
  Bytes max_load = 0;     // most bytes alive at once
  Bytes lower_bound = 0;  // no packing is lower; at least max_load
  std::int64_t work = 0;
  double seconds = 0;

  bool optimal() const { return height == lower_bound; }
  // Packed bytes over the highest load; 1 when nothing is alive.
  double ratio() const {
    return max_load == 0 ? 1.0 : static_cast<double>(height) / static_cast<double>(max_load);
  }
};

// Deterministic unless the limit in seconds is what stops it. An error only for input that
// means nothing: an empty or reversed lifetime, a size or alignment out of range.
Result<Packing> pack(std::span<const Lifetime> lifetimes, const PackOptions& options = {});

}  // namespace regen
