// The lower-set problem as it was published (Kusumoto et al., NeurIPS 2019). A chain of lower sets
// L1 < L2 < ... < Lk = V is a strategy: after block Vi = Li \ Li-1 only the boundaries of the sets
// so far are kept, and going back each block is recomputed once, the last one too.
//
//   overhead  T = cost of V \ U, where U is the union of the boundaries
//   peak      M = max over i of M(Ui-1) + 2 M(Vi) + tail(Li), where tail(L) is the bytes of the
//                 readers of L outside it, and of what these read outside it
//
// Parameters, their gradients and release at the last use are outside this model.
#pragma once

#include <optional>
#include <vector>

#include "regen/published/lower_sets/lower_set_family.h"
#include "regen/published/options.h"
#include "regen/search/planner.h"

namespace regen::published {

struct PublishedStrategy {
  std::vector<std::uint32_t> chain;  // sets of the family, ascending; the last has all nodes
  double overhead = 0;
  Bytes cached = 0;  // M(U)
  Bytes peak = 0;
};

// The formulas themselves, for any chain.
PublishedStrategy evaluate_published(const LowerSetNodes& nodes, const LowerSetFamily& family,
                                     std::vector<std::uint32_t> chain);

struct LowerSetAnswer {
  std::optional<PublishedStrategy> strategy;
  bool proven = false;  // the search came to its end: best, or none exists
};

// Of the strategies over `family` whose peak is within the budget: kTime takes the one of least
// overhead, kMemory the one that caches least (then of least
// overhead), which is what the published code calls memory-centric.
LowerSetAnswer solve_published(const LowerSetNodes& nodes, const LowerSetFamily& family,
                               Bytes budget, Preference prefer, Effort& effort);

// The smallest budget for which there is a strategy; nothing if the effort ran out.
std::optional<Bytes> smallest_published_budget(const LowerSetNodes& nodes,
                                               const LowerSetFamily& family, Effort& effort);

// Chen's heuristic as the published code runs it, over the family of cuts: with n cuts, the first
// ones to hold 1/k, 2/k, ... of the bytes of the last cut, where k is the whole part of the root of
// n. The empty set and the whole, which are in the family, are no cuts.
std::vector<std::uint32_t> published_cuts(const LowerSetFamily& cuts);

}  // namespace regen::published
