// PyTorch fills memory that a kernel is about to write when deterministic algorithms are asked for
// (torch.utils.deterministic.fill_uninitialized_memory). Where a result lies in place of what its
// kernel reads, that would destroy the input; elsewhere it only takes time.
#pragma once

namespace regen::execute {

// While any of these lives, on any thread, nothing is filled. The last one restores what was set.
class LeaveUninitialized {
 public:
  LeaveUninitialized();
  ~LeaveUninitialized();
  LeaveUninitialized(const LeaveUninitialized&) = delete;
  LeaveUninitialized& operator=(const LeaveUninitialized&) = delete;
};

}  // namespace regen::execute
