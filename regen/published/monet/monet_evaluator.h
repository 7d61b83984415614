// The judge of MONeT's model: a schedule as the 0-1 matrices that the published solver writes,
// checked row by row against the published constraints and priced by the published objective. It
// reads the instance itself and shares no code with the search.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regen/published/monet/format/format_monet.h"
#include "regen/published/monet/monet_model.h"

namespace regen::published {

using MonetMatrix = std::vector<std::vector<std::uint8_t>>;

// T stages, V forward nodes (with the loss), the names of the paper.
struct MonetSolution {
  MonetMatrix r;                // T x V: computed in the stage
  MonetMatrix s;                // (T + 1) x V: stored when the stage starts
  MonetMatrix m;                // T x implementations: the backward node's choice
  std::vector<MonetMatrix> rf;  // T x convolutions x algorithms
  MonetMatrix ip;               // T x V: runs in place
  MonetMatrix p;                // T x V: computed and still present
};

struct MonetVerdict {
  std::string violation;  // the first broken constraint in words; empty: none
  Ticks objective = 0;
  Kib peak = 0;  // the highest of all memory rows

  double milliseconds() const { return static_cast<double>(objective) / 100; }
};

struct MonetRules {
  bool in_place = true;  // else present is the same as computed
  bool ablation = false;
};

MonetVerdict evaluate_monet(const MonetInstance& instance, const MonetSolution& solution,
                            Bytes budget, const MonetRules& rules);

// One stage alone, from rows t and t + 1: every constraint and cost belongs to one stage.
MonetVerdict evaluate_monet_stage(const MonetInstance& instance, const MonetSolution& solution,
                                  std::size_t t, Bytes budget, const MonetRules& rules);

// All zero, in the sizes of the instance.
MonetSolution empty_monet_solution(const MonetInstance& instance);

}  // namespace regen::published
