// When to fetch what was moved: at least one op ahead of its use, and further ahead while the copy
// would not be done in time, but never where the bytes would not fit.
//
//   computes    0   1   2   3   4         the copy for compute 4 takes as long as 2 and 3 together:
//   fetch               <-------*         wanted before 2, or as near to it as the limit allows
//
// Copies follow each other, so the last one is given its time first and the one before it must
// end when that one starts.
#pragma once

#include <cstddef>
#include <vector>

#include "regen/graph/graph.h"

namespace regen::search {

// The computes of a plan, with every fetch right before its use.
struct ComputeTimes {
  std::vector<double> start;  // without stalls
  std::vector<Bytes> bytes;   // on the device meanwhile
};

// A value that comes back. Computes are counted from 0.
struct Return {
  TensorId tensor;
  std::size_t earliest = 0;  // the first compute before which it may be fetched
  std::size_t used = 0;      // the compute that reads it
  std::size_t fetched = 0;   // the compute before which it is fetched: earliest..used
  double lead = 1;           // how many times the copy's duration it should be ahead
};

// Sets `fetched` of each, and adds the bytes to the computes that they now lie beside.
// `returns` ascend in `used`; `bandwidth`, in bytes per unit of cost, is positive.
void fetch_ahead(const Graph& graph, double bandwidth, Bytes limit, ComputeTimes& computes,
                 std::vector<Return>& returns);

}  // namespace regen::search
