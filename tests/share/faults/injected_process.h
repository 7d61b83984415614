// A process in which one system call fails. It is judged from outside: a crash, or a call that never
// returns, is one failure of the test and not its end.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/each_failure.h"
#include "tests/share/input/feed_processes.h"
#include "tests/share/support/processes.h"

namespace regen::share {

// After so many seconds a process of a test hangs; it is ended by SIGALRM.
inline constexpr unsigned kHangs = 60;
inline constexpr int kEndedByAlarm = 128 + 14;

// In memory that the process shares with its parent.
struct Found {
  static constexpr std::size_t kMostCalls = 4000;
  std::atomic<int> ready{0};
  std::size_t calls = 0;
  char names[kMostCalls][24] = {};
  char what[80] = {};
  char text[2000] = {};  // an error, or what is wrong

  void say(const std::string& line) { std::snprintf(text, sizeof text, "%s", line.c_str()); }
};

// Regions of shared memory that the process has mapped.
inline std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("/memfd:regen-") != std::string::npos ? 1 : 0;
  }
  return count;
}

class InjectedProcess {
 public:
  static constexpr int kLeaksFiles = 90;
  static constexpr int kLeaksMemory = 91;

  // What `body` returns is the status of the process, unless it leaves something open. The body opens
  // its window, and says what it found.
  using Body = std::function<int(FailureWindow& window, Found& found)>;
  InjectedProcess(FailureWindow& window, const Body& body)
      : window_(window),
        found_(*new (::mmap(nullptr, sizeof(Found), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Found),
        process_([&] { return run(window.again(), body); }) {}
  ~InjectedProcess() { ::munmap(&found_, sizeof(Found)); }
  InjectedProcess(const InjectedProcess&) = delete;

  const Found& found() const { return found_; }
  pid_t id() const { return process_.id(); }
  void signal(int number) const { process_.signal(number); }
  bool has_ended() const { return !lives(process_.id()); }
  // False: it has ended before.
  bool wait_until_ready() const {
    while (found_.ready == 0) {
      if (has_ended()) return found_.ready != 0;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }
  // Its status; the parent's window knows then what has failed.
  int wait() {
    const int status = process_.wait();
    std::vector<std::string> names(found_.calls);
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = found_.names[i];
    window_.found(std::move(names), found_.what);
    return status;
  }

 private:
  int run(FailureWindow own, const Body& body) {
    ::alarm(kHangs);
    const std::size_t files = open_files(::getpid());
    const std::size_t mappings = shared_mappings();
    int status = body(own, found_);
    own.close();
    found_.calls = std::min(own.calls().size(), Found::kMostCalls);
    for (std::size_t i = 0; i < found_.calls; ++i) {
      std::snprintf(found_.names[i], sizeof found_.names[i], "%s", own.calls()[i].c_str());
    }
    std::snprintf(found_.what, sizeof found_.what, "%s", own.what().c_str());
    if (open_files(::getpid()) != files) status = kLeaksFiles;
    if (shared_mappings() != mappings) status = kLeaksMemory;
    return status;
  }

  FailureWindow& window_;
  Found& found_;
  Process process_;
};

// A process in which nothing fails, and that may not hang.
inline Process in_time(const std::function<int()>& body) {
  return Process([&] {
    ::alarm(kHangs);
    return body();
  });
}

// A connection breaks although both ends live, which the kernel does not do by itself: a process that was cut off
// is taken for gone.
inline bool cuts_off(const FailureWindow& window) {
  return window.failed_with("EPIPE") || window.failed_with("ECONNRESET");
}

inline bool is_one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == std::string::npos;
}

}  // namespace regen::share
