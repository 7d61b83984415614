// System calls of the code under test that fail on demand, one at a time, so that a test can let
// each of them fail in turn. The linker puts these in front of libc's (tests/CMakeLists.txt).
#pragma once

#include <string>
#include <vector>

namespace regen {

// While one lives, the calls of this thread are counted; the one with number `failing` fails.
class FailingCalls {
 public:
  enum class How {
    kError,       // with an error that is usual for the call
    kShortWrite,  // only for write: half of the bytes, then "no space left"
  };
  static constexpr int kNone = -1;

  explicit FailingCalls(int failing = kNone, How how = How::kError);
  ~FailingCalls();
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;

  // The names of all calls so far.
  const std::vector<std::string>& calls() const { return calls_; }
  bool failed() const { return failed_; }

  // Of the functions that stand in front of libc's: true if this call is to fail.
  bool fails(const char* name);
  How how() const { return how_; }

 private:
  const int failing_;
  const How how_;
  bool failed_ = false;
  std::vector<std::string> calls_;
};

}  // namespace regen
