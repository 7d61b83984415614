// The best chain of lower sets, counted as the judge counts (lower_set_memory.h).
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "regen/published/lower_sets/lower_set_memory.h"

namespace regen::published {

// Which transitions are tried: all, or those that no set between makes superfluous. The latter are
// far fewer in a large family; liveness in the forward pass may, rarely, prefer one of the
// others, so that their best chain is not proven to be the best of all.
enum class Transitions : std::uint8_t { kAll, kIrreducible };

struct ChainSearchOptions {
  Bytes budget = std::numeric_limits<Bytes>::max();             // without the fixed bytes
  double cost_below = std::numeric_limits<double>::infinity();  // of re-runs; others do not count
  Transitions transitions = Transitions::kIrreducible;
  std::size_t beam = 0;  // at most so many states of a set are followed, 4 or more; 0: all
  bool leanest = false;  // any chain within the budget will do: looks at fewer
};

struct ChainSearchResult {
  std::optional<std::vector<std::uint32_t>> chain;  // sets of the family, the last is the whole
  double cost = 0;                                  // of its re-runs
  bool complete = false;                            // looked at everything it was asked to
};

// Over a complete family with kAll, or any other family, the result is the cheapest chain.
ChainSearchResult search_chains(LowerSetMemory& memory, const LowerSetFamily& family,
                                const ChainSearchOptions& options, Effort& effort);

}  // namespace regen::published
