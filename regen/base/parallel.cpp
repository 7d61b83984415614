#include "regen/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace regen {

int available_threads() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body) {
  const std::size_t wanted = static_cast<std::size_t>(threads > 0 ? threads : available_threads());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };

  std::vector<std::jthread> helpers;
  try {
    while (helpers.size() + 1 < std::min(wanted, count)) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // The system gives no more threads: those that run share the work.
  }
  work();
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace regen
