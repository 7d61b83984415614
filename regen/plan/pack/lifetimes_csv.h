// Lifetimes as comma-separated text, in the form that MiniMalloc reads and writes:
//
//   id,lower,upper,size             id,lower,upper,size,offset
//   a,0,4,2                 and     a,0,4,2,2
//   b,0,6,2                         b,0,6,2,0
//
// The first line names the columns, in any order; others than these are ignored, so a packed
// file can be packed again. There is no quoting: a comma always separates.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/plan/pack/pack.h"

namespace regen {

struct LifetimeTable {
  std::vector<std::string> ids;  // unique, one for each lifetime
  std::vector<Lifetime> lifetimes;

  bool operator==(const LifetimeTable&) const = default;
};

// `what` names the source in messages, which also give the line. Refused: a missing or doubled
// column, a row of another length, what is no whole number, sizes outside [0, kMaxBytes], an
// upper that does not exceed its lower, an id that is empty or seen before.
Result<LifetimeTable> parse_lifetimes_csv(std::string_view text, std::string_view what);

// With one offset for each lifetime, or none for the form without that column.
std::string format_lifetimes_csv(const LifetimeTable& table, std::span<const Bytes> offsets = {});

}  // namespace regen
