// The page's server, by sockets: what it answers to whom, and clients that are slow, many or hostile.
#include "regen/share/web/page_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>
#include <thread>

#include "regen/base/random.h"
#include "regen/share/report/prometheus.h"
#include "tests/share/support/processes.h"
#include "tests/share/support/stranger.h"

namespace regen::share {
namespace {

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

constexpr const char* kForbidden =
    "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

// A connection to a port of this machine.
class Browser {
 public:
  // `deaf`: its kernel takes little before it reads.
  explicit Browser(std::uint16_t port, bool deaf = false)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const int least = 4096;
    if (deaf) ::setsockopt(socket_.number(), SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(port);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.number(), reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
  }
  bool send(const std::string& bytes) {
    return ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Everything until the other side closes.
  std::string rest() {
    std::string all;
    char buffer[4096];
    ssize_t count = 0;
    while ((count = ::recv(socket_.number(), buffer, sizeof buffer, 0)) > 0) {
      all.append(buffer, static_cast<std::size_t>(count));
    }
    return all;
  }
  int number() const { return socket_.number(); }

 private:
  Descriptor socket_;
};

DaemonStatus status_with(const std::string& name) {
  DaemonStatus status{.process = 7, .age = 1'500'000'000};
  status.devices.push_back({.name = "gpu0", .bytes = 1000});
  status.devices[0].jobs.push_back({.name = name, .identity = "a"});
  return status;
}

class Page : public ::testing::Test {
 protected:
  // Generous where a test is not about time: the machine may be busy.
  void start(const HttpPatience& patience = {}) {
    server_ = PageServer::start({}, patience).value();
    const std::string url = server_->url();
    port_ = static_cast<std::uint16_t>(std::stoi(url.substr(url.find("0.1:") + 4)));
    token_ = url.substr(url.find("token=") + 6);
  }
  std::string get(const std::string& target, const std::string& fields = "") {
    Browser browser(port_);
    browser.send("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n");
    return browser.rest();
  }
  std::string with_token(const std::string& path) {
    return get(path, "Authorization: Bearer " + token_ + "\r\n");
  }
  static std::string body(const std::string& answer) {
    return answer.substr(answer.find("\r\n\r\n") + 4);
  }

  std::unique_ptr<PageServer> server_;
  std::uint16_t port_ = 0;
  std::string token_;
};

TEST_F(Page, NothingWithoutTheToken) {
  start();
  server_->publish(status_with("secret"));
  std::string wrong = token_;
  wrong[63] = wrong[63] == '0' ? '1' : '0';
  for (const std::string path :
       {"/", "/status.json", "/history.json", "/metrics", "/nothing", "/favicon.ico"}) {
    for (const std::string query : {"", "?token=", "?token=x", "?after=3"}) {
      EXPECT_EQ(get(path + query), kForbidden) << path << query;
    }
    EXPECT_EQ(get(joined({path, "?token=", wrong})), kForbidden);
    EXPECT_EQ(get(joined({path, "?Token=", token_})), kForbidden);
    EXPECT_EQ(get(path, joined({"Authorization: Bearer ", wrong, "\r\n"})), kForbidden);
    EXPECT_EQ(get(path, joined({"Authorization: Basic ", token_, "\r\n"})), kForbidden);
    EXPECT_EQ(get(path, "Cookie: token=" + token_ + "\r\n"), kForbidden);
  }
}

TEST_F(Page, ThePageForbidsItselfEverythingElse) {
  start();
  const std::string answer = get("/?token=" + token_);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: text/html; charset=utf-8\r\n"));
  const std::size_t begin = answer.find("\r\nContent-Security-Policy: ");
  ASSERT_NE(begin, std::string::npos);
  const std::string policy = answer.substr(begin, answer.find("\r\n", begin + 2) - begin);
  EXPECT_THAT(policy, HasSubstr("default-src 'none'; style-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("script-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("connect-src 'self'"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_THAT(answer, HasSubstr("\r\nReferrer-Policy: no-referrer\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nCache-Control: no-store\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("Access-Control-Allow")));
  EXPECT_THAT(body(answer), Not(HasSubstr(token_)));
  EXPECT_EQ(body(answer).find("http://"), std::string::npos) << "no other file";
  EXPECT_EQ(body(answer).find("https://"), std::string::npos);
}

TEST_F(Page, GivesTheReportInThreeForms) {
  start();
  const DaemonStatus status = status_with("</script>\xff");
  server_->publish(status);
  const Json shown = Json::parse(body(with_token("/status.json")));
  EXPECT_EQ(shown["devices"][0]["jobs"][0]["name"], "</script>\xef\xbf\xbd")
      << "no UTF-8, replaced";
  EXPECT_EQ(shown["process"], 7);
  const std::string metrics = body(with_token("/metrics"));
  EXPECT_EQ(metrics, prometheus_text(to_json(status)));
  EXPECT_EQ(Json::parse(body(with_token("/history.json")))["last_step"], -1);
  for (std::int64_t step = 1; step <= 5; ++step) {
    DaemonStatus later = status;
    later.age = step * History::kStep;
    server_->publish(later);
    // Each is taken before the next one comes; reports that nobody has seen would be left out.
    while (Json::parse(body(with_token("/status.json")))["age_seconds"] != to_seconds(later.age)) {
    }
  }
  const auto last = [&](const std::string& query) {
    return Json::parse(body(with_token("/history.json" + query)))["devices"][0]["used_bytes"]
        .size();
  };
  EXPECT_EQ(last(""), 5u);
  EXPECT_EQ(last("?after=2"), 2u);
  EXPECT_EQ(last("?after=2"), 2u) << "the same text again";
  EXPECT_THAT(with_token("/else"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
}

TEST_F(Page, OnlyAsksAndOnlyByItsName) {
  start();
  const auto answer_to = [&](const std::string& line, const std::string& fields) {
    Browser browser(port_);
    browser.send(line + "\r\n" + fields + "\r\n");
    return browser.rest();
  };
  const std::string target = "/status.json?token=" + token_ + " HTTP/1.1";
  for (const std::string method :
       {"HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"}) {
    const std::string answer = answer_to(joined({method, " ", target}), "Host: localhost\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET\r\n"));
    EXPECT_EQ(answer_to(method + " / HTTP/1.1", "Host: localhost\r\n"), kForbidden) << method;
  }
  EXPECT_EQ(answer_to("GET " + target, "Host: rebound.example\r\n"), kForbidden);
  EXPECT_THAT(answer_to("GET " + target, "Host: 127.0.0.1:9\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer_to("GET " + target, "Host: localhost\r\nContent-Length: 3\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer_to("GET " + target, ""), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer_to("hello", ""), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer_to("GET /" + std::string(3000, 'a') + " HTTP/1.1", ""),
              StartsWith("HTTP/1.1 414 "));
  EXPECT_THAT(answer_to("GET / HTTP/1.1", "X: " + std::string(20'000, 'x') + "\r\n"),
              StartsWith("HTTP/1.1 431 "));
}

TEST_F(Page, WhoIsSlowIsEnded) {
  start({.head = milliseconds(50)});
  Browser silent(port_), slow(port_);
  EXPECT_THAT(silent.rest(), StartsWith("HTTP/1.1 408 "));
  const auto began = Clock::now();
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::size_t sent = 0;
  while (sent < 20 && slow.send(request.substr(sent, 1))) {
    ++sent;
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GT(Clock::now() - began, milliseconds(50));
  EXPECT_THAT(slow.rest(), Not(HasSubstr(" 200 ")));
}

// More than a socket holds, in a text that is made already.
class LargePage : public Page {
 protected:
  void start_large(std::chrono::nanoseconds answer) {
    start({.answer = answer});
    DaemonStatus status = status_with("a");
    status.devices[0].jobs.resize(12'000, status.devices[0].jobs[0]);
    server_->publish(status);
    EXPECT_TRUE(Json::accept(body(with_token("/status.json"))));
  }
  std::unique_ptr<Browser> ask_and_be_deaf() const {
    auto deaf = std::make_unique<Browser>(port_, true);
    deaf->send("GET /status.json?token=" + token_ + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return deaf;
  }
};

// A browser that does not read its answer has a bounded time for it.
TEST_F(LargePage, WhoDoesNotReadIsEnded) {
  start_large(milliseconds(500));
  bool cut_off = false;
  for (int pause = 1000; pause < 20'000 && !cut_off; pause *= 2) {
    const auto deaf = ask_and_be_deaf();
    std::this_thread::sleep_for(milliseconds(pause));
    const std::string all = deaf->rest();
    EXPECT_THAT(all, StartsWith("HTTP/1.1 200 OK\r\n"));
    cut_off = !Json::accept(body(all));
  }
  EXPECT_TRUE(cut_off);
}

// Those that have the token and do not read hold their places, for as long as an answer may take.
TEST_F(LargePage, ThePlacesAreLimited) {
  start_large(std::chrono::seconds(60));
  std::vector<std::unique_ptr<Browser>> deaf;
  for (std::size_t i = 0; i < 3 * PageServer::kMostConnections; ++i) {
    deaf.push_back(ask_and_be_deaf());
  }
  std::size_t begun = 0;
  for (const auto& one : deaf) {
    pollfd asked{.fd = one->number(), .events = POLLIN, .revents = 0};
    char first = 0;
    ::poll(&asked, 1, -1);
    begun += ::recv(one->number(), &first, 1, 0) == 1 ? 1 : 0;
  }
  EXPECT_EQ(begun, PageServer::kMostConnections);
  deaf.clear();
  EXPECT_TRUE(eventually([&] { return !with_token("/metrics").empty(); })) << "once they have gone";
}

TEST_F(Page, SilentOnesDoNotHoldThePlaces) {
  start();
  std::vector<std::unique_ptr<Browser>> crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(std::make_unique<Browser>(port_));
    crowd.back()->send(i % 2 == 0 ? "GET / HT" : "");
    if (i % 20 != 0) continue;
    EXPECT_THAT(with_token("/metrics"), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
  EXPECT_THAT(with_token("/metrics"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(Page, GarbageIsAnsweredAndForgotten) {
  start();
  Random random(23);
  for (int round = 0; round < 300; ++round) {
    Browser browser(port_);
    std::string bytes;
    for (auto size = random.between(0, 300); size > 0; --size)
      bytes += static_cast<char>(random.next());
    if (random.chance(0.5)) bytes.insert(0, "GET /?token=");
    browser.send(bytes.append("\r\n\r\n"));
    if (random.chance(0.5)) continue;  // and is gone
    EXPECT_THAT(browser.rest(), StartsWith("HTTP/1.1 4"));
  }
  EXPECT_THAT(with_token("/metrics"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(Page, EndsWithConnectionsOpen) {
  start();
  Browser open(port_);
  open.send("GET / ");
  EXPECT_EQ(get("/"), kForbidden);
  server_.reset();
  EXPECT_EQ(open.rest(), "");
  start();  // and again, at another port
  EXPECT_EQ(get("/"), kForbidden);
}

// The daemon's thread leaves a report and goes on, whatever browsers do.
TEST_F(Page, AReportIsLeftWhileBrowsersAreBusy) {
  start();
  std::atomic<bool> over = false;
  std::thread browser([&] {
    while (!over) with_token("/history.json");
  });
  for (std::int64_t i = 1; i <= 2'000; ++i) {
    DaemonStatus status = status_with("a");
    status.age = i * 1'000'000'000;
    server_->publish(std::move(status));
  }
  over = true;
  browser.join();
  const Json last = Json::parse(body(with_token("/status.json")));
  EXPECT_EQ(last["age_seconds"], 2000);
}

TEST(PageServer, AtAUnixSocket) {
  TemporaryFolder folder;
  const std::string path = folder.path("page");
  const auto server = PageServer::start({.path = path}).value();
  EXPECT_THAT(server->url(), StartsWith("unix:" + path + " http://localhost/?token="));
  const std::string token = server->url().substr(server->url().find("token=") + 6);
  Stranger curl(path), without(path);
  curl.send("GET /metrics?token=" + token + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(curl.rest(), StartsWith("HTTP/1.1 200 OK\r\n"));
  without.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(without.rest(), kForbidden);
  EXPECT_THAT(PageServer::start({.path = path}).error().message,
              HasSubstr("a page serves there already"));
}

TEST(PageServer, SaysWhyItCannotServe) {
  const auto first = PageServer::start({}).value();
  const std::string url = first->url();
  const auto port = static_cast<std::uint16_t>(std::stoi(url.substr(url.find("0.1:") + 4)));
  const auto second = PageServer::start({.port = port});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message,
            "cannot serve the page at '127.0.0.1:" + std::to_string(port) +
                "': bind: Address already in use, expected a port that is free (0: any)");
}

TEST(PageServer, OfADaemon) {
  TemporaryFolder folder;
  DaemonOptions options = test_daemon(folder);
  const std::string path = folder.path("page");
  options.page = PageAddress{.path = path};
  options.show_page = [&](const std::string& url) {
    FILE* file = std::fopen(folder.path("url").c_str(), "w");
    std::fputs(url.c_str(), file);
    std::fclose(file);
  };
  const Process daemon = start_daemon(options);
  auto client = Client::connect({.socket = options.socket}, {.name = "job"});
  ASSERT_TRUE(client.ok() && client->acquire().ok());
  char url[1000] = {};
  FILE* file = std::fopen(folder.path("url").c_str(), "r");
  ASSERT_NE(std::fgets(url, sizeof url, file), nullptr);
  std::fclose(file);
  const std::string query = std::string(url).substr(std::string(url).find("?token="));
  EXPECT_TRUE(eventually([&] {
    Stranger browser(path);
    browser.send("GET /status.json" + query + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const std::string answer = browser.rest();
    const Json shown = Json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
    const Json& jobs = shown["devices"][0]["jobs"];
    return jobs.size() == 1 && jobs[0]["state"] == "holding";
  })) << "at most a second later";
}

}  // namespace
}  // namespace regen::share
