// Rows that a fractional schedule breaks and no whole one does: where values come from.
//
// A value that is there after stages s1..s2 was there when they began, or its op ran in between;
// then one of that op's inputs was there when they began, or that input's op ran in between; and so
// on back along any one path. So, for a path v = y0, y1, .., yk of values each made from the next:
//
//   S[s2 + 1, v]  <=  S[s1, y0] + ... + S[s1, yk] + sum over s in s1..s2 of R[s, op of yk]
//
// and the same with 1 on the left if op s2 reads v. Without these rows a relaxation can run an op
// by a small part in every stage, feeding on one small part of its input, until the parts add up.
#pragma once

#include <vector>

#include "regen/search/exact/stage_model.h"

namespace regen::search {

// Adds the rows that `values` breaks most, spread over values and stages; returns how many.
int add_provenance_cuts(StageModel& program, const std::vector<double>& values);

}  // namespace regen::search
