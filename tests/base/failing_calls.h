// System calls of the code under test that fail on demand, one at a time, so that a test can let
// each of them fail in turn, in each way that is plausible for it. The linker puts these in front of
// libc's (regen_failing_calls in tests/CMakeLists.txt).
//
// Not in the list are calls that cannot fail with the arguments that regen gives them (munmap,
// epoll_wait but for a signal, timerfd_settime, umask, queries of a lock or of flags), and what
// libstdc++ calls by itself (std::filesystem, std::random_device).
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace regen {

// How a call fails.
struct Failure {
  enum class Kind : std::uint8_t {
    kError,     // with `error`
    kShort,     // some of the bytes, and no error
    kFull,      // some of the bytes, and from then on "no space left"
    kDropped,   // a message arrives without the descriptors that came along: none is left for them
    kReturned,  // a signal has woken the call, which reports no error (futex)
  };
  Kind kind = Kind::kError;
  int error = 0;
};

// All that are plausible for the call of this name; the first is the most usual one.
const std::vector<Failure>& failures_of(std::string_view call);
std::string to_string(const Failure& failure);

// While one lives, the calls of this process are counted; the one with number `failing` fails. A
// forked child has none of its parent's.
class FailingCalls {
 public:
  enum class Scope : std::uint8_t { kThisThread, kAllThreads };
  static constexpr int kNone = -1;

  // `way`: which of failures_of(the call).
  explicit FailingCalls(int failing = kNone, std::size_t way = 0, Scope scope = Scope::kThisThread);
  ~FailingCalls();
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;

  // The names of all calls so far.
  std::vector<std::string> calls() const;
  // Whether one has failed, and what.
  bool failed() const { return !failed_.empty(); }
  const std::string& what() const { return failed_; }

  // Of the functions that stand in front of libc's: how this call is to fail; null: it is not.
  static const Failure* next(const char* name);
  static bool disk_is_full();

 private:
  const Failure* count(const char* name);
  static FailingCalls* active();

  const int failing_;
  const std::size_t way_;
  const Scope scope_;
  const pid_t process_;
  const pid_t thread_;
  mutable std::mutex mutex_;
  bool disk_is_full_ = false;
  std::string failed_;
  std::vector<std::string> calls_;
};

}  // namespace regen
