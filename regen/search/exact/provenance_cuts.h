// Provenance cuts: rows about where values come from. An integral schedule satisfies them, a
// fractional one may not.
//
// A value that is live after stages s1..s2 was live when they began, or its op ran in between. In
// that case one of the op's inputs was live when they began, or that input's op ran in between, and
// so on back along any one path. So, for a path v = y0, y1, .., yk of values each made from the
// next:
//
//   S[s2 + 1, v]  <=  S[s1, y0] + ... + S[s1, yk] + sum over s in s1..s2 of R[s, op of yk]
//
// and the same with 1 on the left if op s2 reads v. Without these rows a relaxation can run a small
// fraction of an op in every stage from one small fraction of its input, until the fractions add up
// to one.
#pragma once

#include <vector>

#include "regen/search/exact/stage_model.h"

namespace regen::search {

// Adds the rows that `values` violates most, spread over values and stages; returns their number.
int add_provenance_cuts(StageModel& model, const std::vector<double>& values);

}  // namespace regen::search
