// Lets every system call of a piece of work fail in turn, in every plausible way.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "failing_calls.h"

namespace regen {

// The part of a test in which calls count, and one of them may fail.
class FailureWindow {
 public:
  using Scope = FailingCalls::Scope;
  explicit FailureWindow(int failing = FailingCalls::kNone, std::size_t way = 0,
                         Scope scope = Scope::kThisThread)
      : failing_(failing), way_(way), scope_(scope) {}

  void open() { active_.emplace(failing_, way_, scope_); }
  void close() {
    if (!active_) return;
    calls_ = active_->calls();
    what_ = active_->what();
    active_.reset();
  }
  // What `work` returns, with the calls in it.
  template <typename Work>
  auto during(Work work) {
    open();
    auto result = work();
    close();
    return result;
  }

  // What was found by a window like this one in another process.
  void found(std::vector<std::string> calls, std::string what) {
    calls_ = std::move(calls);
    what_ = std::move(what);
  }
  FailureWindow again() const { return FailureWindow(failing_, way_, scope_); }

  // Once closed.
  const std::vector<std::string>& calls() const { return calls_; }
  // "open: EMFILE", or nothing where all went well.
  const std::string& what() const { return what_; }
  bool failed() const { return !what_.empty(); }
  bool failed_with(const std::string& part) const { return what_.find(part) != std::string::npos; }

 private:
  const int failing_;
  const std::size_t way_;
  const Scope scope_;
  std::optional<FailingCalls> active_;
  std::vector<std::string> calls_;
  std::string what_;
};

// How many calls have failed, by name, each way counted.
struct Sites {
  std::map<std::string, int> of;
  int total = 0;

  void add(const FailureWindow& window) {
    if (!window.failed()) return;
    ++of[window.what().substr(0, window.what().find(": "))];
    ++total;
  }
  void print(const char* scenario) const {
    std::printf("%s: %d failures of %zu kinds of calls\n", scenario, total, of.size());
    ::testing::Test::RecordProperty(std::string("sites, ") + scenario, total);
  }
};

// Runs `body` once without a failure, to count, and then once for each call and each way. The body opens
// and closes the window, and says what must hold afterwards.
inline Sites fail_each_call(const char* scenario, const std::function<void(FailureWindow&)>& body,
                            FailureWindow::Scope scope = FailureWindow::Scope::kThisThread) {
  FailureWindow whole(FailingCalls::kNone, 0, scope);
  body(whole);
  Sites sites;
  const char* only = std::getenv("REGEN_FAILURE");  // "CALL.WAY": one of them, to look at it
  for (std::size_t call = 0; call < whole.calls().size(); ++call) {
    const std::string& name = whole.calls()[call];
    for (std::size_t way = 0; way < failures_of(name).size(); ++way) {
      SCOPED_TRACE("call " + std::to_string(call) + "." + std::to_string(way) + " of " +
                   std::to_string(whole.calls().size()) + ", in the first run " + name + ": " +
                   to_string(failures_of(name)[way]));
      if (only != nullptr && only != std::to_string(call) + "." + std::to_string(way)) continue;
      FailureWindow window(static_cast<int>(call), way, scope);
      body(window);
      sites.add(window);
      if (::testing::Test::HasFatalFailure()) return sites;
    }
  }
  sites.print(scenario);
  return sites;
}

}  // namespace regen
