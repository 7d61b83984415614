// Other ways to run a call, found by refusing it scratch memory.
//
// An operator that is refused a request for scratch memory either fails, or goes on with another
// algorithm that needs less and remembers that one for all calls of the same problem on the same
// thread, as PyTorch does with cuDNN's convolutions. So a cap just below the largest request is
// tried, then one below the largest request of what that led to, and so on:
//
//   no cap        282 MiB   0.37 ms
//   282 MiB - 1    37 MiB   0.45 ms     each row is an alternative, with its cap
//   37 MiB - 1      0 B     1.06 ms
//
// All of this happens on a thread of its own, whose memory of choices ends with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "regen/execute/device/device.h"
#include "regen/execute/placement/placement.h"
#include "regen/execute/record/record_cache.h"

namespace regen::execute {

// A call that can be made any number of times and changes nothing but its own results.
struct RepeatableCall {
  std::function<std::vector<at::Tensor>()> run;
  // Fills in allocations and results, from what a run returned and allocated.
  std::function<void(const std::vector<at::Tensor>&, const std::vector<RecordedAllocation>&,
                     CallRecord&)>
      describe;
  std::function<double()> time;
};

struct SearchLimits {
  Bytes least_scratch = Bytes{1} << 20;  // smaller requests are not worth a refusal
  std::size_t most_alternatives = 3;
};

// The most that it has allocated at once and freed before it returned.
Bytes scratch_bytes(const std::vector<CallAllocation>& allocations);
// The largest single one of these.
Bytes largest_scratch(const std::vector<CallAllocation>& allocations);

// The call as it runs by default, with its alternatives. Those that are slower than another one
// and need no less are left out. With `caps`, of a call with the same problem, there is one
// alternative for each of them, if the call answers all of them.
Result<CallRecord> search_algorithms(const RepeatableCall& call, ExecutionDevice& device,
                                     const SearchLimits& limits = {},
                                     const std::vector<Bytes>* caps = nullptr);

}  // namespace regen::execute
