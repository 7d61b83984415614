// When to fetch values that were moved: at least one op ahead of their use, further ahead if the
// copy would not be done in time, but never where the bytes would not fit.
//
//   computes    0   1   2   3   4         the copy for compute 4 takes as long as 2 and 3 together:
//   fetch               <-------*         issued before 2, or as near to it as the limit allows
//
// Copies run one after the other. So times are assigned from the last copy to the first: each must
// end when the next one starts.
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
  double lead = 1;           // how far ahead the fetch should be, in durations of the copy
};

// Sets `fetched` of each, and adds its bytes to the computes during which it is now on the device.
// `returns` ascend in `used`; `bandwidth`, in bytes per unit of cost, is positive.
void fetch_ahead(const Graph& graph, double bandwidth, Bytes limit, ComputeTimes& computes,
                 std::vector<Return>& returns);

}  // namespace regen::search
