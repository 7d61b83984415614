// One thread that does work for other threads, which wait for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace regen::execute {

class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Calls `work` on the worker's thread, with torch's thread-local state of the caller (grad
  // mode, autocast, ...), and returns when it has returned; throws what it has thrown. Callers
  // take turns. On the worker's own thread it is a plain call.
  void run(const std::function<void()>& work);

  // Goes on with a new thread, for which libraries remember nothing. Not on the worker's own.
  void renew();

 private:
  void start();
  void end();
  void loop();

  std::mutex turn_;  // held by the caller whose work is done
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr error_;
  bool ending_ = false;
  std::atomic<std::thread::id> id_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace regen::execute
