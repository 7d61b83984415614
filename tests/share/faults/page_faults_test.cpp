// Every system call of the page's server fails in turn, in each way that is plausible. Either it does not start, with one
// clear line, or a browser that asks again is answered; nothing is left open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/share/web/page_server.h"
#include "tests/share/faults/injected_process.h"
#include "tests/share/support/stranger.h"

namespace regen::share {
namespace {

using Scope = FailingCalls::Scope;

// Serves until it is told to end.
InjectedProcess::Body serving(const PageAddress& address, std::atomic<int>& stop) {
  return [&](FailureWindow& window, Found& found) {
    return window.during([&] {
      auto server = PageServer::start(address);
      if (!server.ok()) {
        found.say(server.error().message);
        return 2;
      }
      (*server)->publish({.process = 77});
      found.say((*server)->url());
      found.ready = 1;
      while (stop == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
      return 0;
    });
  };
}

// How often it was asked, until it answered.
int ask_for_status(const std::string& path, const std::string& url) {
  const std::string query = url.substr(url.find("?token="));
  for (int attempt = 1; attempt < 1000; ++attempt) {
    Stranger browser(path);
    browser.send("GET /status.json" + query + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const std::string answer = browser.rest();
    const std::size_t body = answer.find("\r\n\r\n");
    if (body != std::string::npos && Json::accept(answer.substr(body + 4))) {
      EXPECT_EQ(Json::parse(answer.substr(body + 4))["process"], 77);
      return attempt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return 1000;
}

void serve_once(FailureWindow& window) {
  TemporaryFolder folder;
  Board& board = new_board();
  const PageAddress address{.path = folder.path("page")};
  InjectedProcess server(window, serving(address, board.stop));
  if (!server.wait_until_ready()) {
    EXPECT_EQ(server.wait(), 2) << server.found().text;
    EXPECT_TRUE(window.failed());
    EXPECT_TRUE(is_one_line(server.found().text)) << server.found().text;
    return;
  }
  // One question may be what failed, and one the connection that it came by.
  EXPECT_LE(ask_for_status(address.path, server.found().text), 3);
  board.stop = 1;
  EXPECT_EQ(server.wait(), 0);
}

TEST(PageFaults, AtAUnixSocket) {
  const Sites sites = fail_each_call("a page", serve_once, Scope::kAllThreads);
  EXPECT_GE(sites.total, 40);
  for (const char* call : {"getrandom", "bind", "listen", "accept", "recv", "thread", "shutdown"}) {
    EXPECT_EQ(sites.of.count(call), 1u) << call;
  }
}

void start_at_port(FailureWindow& window) {
  Board& board = new_board();
  board.stop = 1;
  InjectedProcess server(window, serving({}, board.stop));
  const int status = server.wait();
  const std::string text = server.found().text;
  EXPECT_TRUE(is_one_line(text)) << text;
  EXPECT_TRUE(status == 0 || (status == 2 && window.failed())) << text;
  EXPECT_EQ(text.find("http://127.0.0.1:") == 0, status == 0) << text;
}

TEST(PageFaults, AtAPort) {
  const Sites sites = fail_each_call("a page at a port", start_at_port, Scope::kAllThreads);
  EXPECT_EQ(sites.of.count("getsockname"), 1u);
  EXPECT_EQ(sites.of.count("setsockopt"), 1u);
}

}  // namespace
}  // namespace regen::share
