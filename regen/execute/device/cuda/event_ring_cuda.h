// CUDA's events of one queue, used again and again.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

namespace regen::execute {

// True when all work before the event is done; throws CUDA's error if that work has failed.
bool cuda_event_done(cudaEvent_t event);

// Tickets ascend from 1. The event of ticket t is at place t modulo the size; before a place is
// used again its old ticket must be done, else the ring grows. So in the steady state nothing is
// created, and no event is asked whether it is done before the ring has been filled once.
class EventRing {
 public:
  EventRing() : events_(64, nullptr) {}
  ~EventRing();
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;

  std::uint64_t record(cudaStream_t stream);
  // Null for a ticket that is known to be done.
  cudaEvent_t find(std::uint64_t ticket) const { return ticket < oldest_ ? nullptr : at(ticket); }

 private:
  cudaEvent_t at(std::uint64_t ticket) const { return events_[ticket % events_.size()]; }
  void make_room();

  std::vector<cudaEvent_t> events_;
  std::uint64_t oldest_ = 1;  // of the tickets in [oldest_, next_) the events are in use
  std::uint64_t next_ = 1;
};

}  // namespace regen::execute
