// Random changes to decisions of the interval model, which a repair follows: dropped values near
// each other are held again, values are moved or no longer moved.
#pragma once

#include "regen/base/random.h"
#include "regen/search/local/interval_evaluator.h"

namespace regen::search {

// In a neighbourhood of random width.
void perturb(const IntervalSpace& space, Decisions& decisions, Random& random);

// A few decisions anywhere, for exact repairs: these change little at a time.
void perturb_few(const IntervalSpace& space, Decisions& decisions, Random& random);

}  // namespace regen::search
