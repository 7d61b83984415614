#include "regen/execute/device/cuda/event_ring_cuda.h"

namespace regen::execute {

bool cuda_event_done(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // or the next check would report it
    return false;
  }
  C10_CUDA_CHECK(status);
  return true;
}

EventRing::~EventRing() {
  for (cudaEvent_t event : events_) {
    // At the end of the process CUDA may be gone already; nothing is left to do then.
    if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
  }
}

std::uint64_t EventRing::record(cudaStream_t stream) {
  if (next_ - oldest_ == events_.size()) make_room();
  cudaEvent_t& event = events_[next_ % events_.size()];
  // A thread that waits for one on the host sleeps; between queues the flag changes nothing.
  constexpr unsigned kFlags = cudaEventDisableTiming | cudaEventBlockingSync;
  if (event == nullptr) C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, kFlags));
  C10_CUDA_CHECK(cudaEventRecord(event, stream));
  return next_++;
}

void EventRing::make_room() {
  while (oldest_ < next_ && cuda_event_done(at(oldest_))) ++oldest_;
  if (next_ - oldest_ < events_.size()) return;
  std::vector<cudaEvent_t> larger(2 * events_.size(), nullptr);
  for (std::uint64_t ticket = oldest_; ticket < next_; ++ticket) {
    larger[ticket % larger.size()] = at(ticket);
  }
  events_.swap(larger);
}

}  // namespace regen::execute
