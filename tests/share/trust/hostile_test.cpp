// Clients that do not keep to the protocol: one error each, and no effect on other clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "regen/base/random.h"
#include "tests/share/support/processes.h"
#include "tests/share/support/stranger.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

class Hostile : public ::testing::Test {
 protected:
  std::string answer_to(const std::string& bytes, bool end = false) {
    Stranger stranger(folder_.path("s"));
    stranger.send(bytes);
    if (end) stranger.end();
    return stranger.error();
  }
  bool alive() { return report(folder_.path("s")).is_object(); }

  TemporaryFolder folder_;
  Process daemon_ = start_daemon(test_daemon(folder_));
};

TEST_F(Hostile, OneErrorForEachMistake) {
  EXPECT_THAT(answer_to("HELO"), HasSubstr("message begins with 'HELO'"));
  EXPECT_THAT(answer_to(std::string("RGSH\x09\x00\x01\x00\x02\x00\x00\x00{}", 14)),
              HasSubstr("version 9, expected 1"));
  EXPECT_THAT(answer_to(std::string("RGSH\x01\x00\x01\x00\xff\xff\xff\x7f", 12)),
              HasSubstr("body of 2147483647 bytes"));
  EXPECT_THAT(answer_to(std::string("RGSH\x01\x00\x63\x00\x02\x00\x00\x00{}", 14)),
              HasSubstr("unknown type 99"));
  EXPECT_THAT(answer_to(frame("{]")), HasSubstr("message body"));
  EXPECT_THAT(answer_to(frame("{}")), HasSubstr("name"));
  EXPECT_THAT(answer_to(frame(R"({"name":"a","identity":"b","priority":-1})")),
              HasSubstr("priority"));
  EXPECT_THAT(answer_to(frame(R"({"name":"a","identity":"b","device":"moon"})")),
              HasSubstr("unknown device 'moon', expected one of cpu"));
  EXPECT_THAT(answer_to(frame("{}", MessageType::kAcquire)), HasSubstr("expected register first"));
  EXPECT_TRUE(alive());
}

TEST_F(Hostile, HalfMessages) {
  EXPECT_THAT(answer_to("RG", true), HasSubstr("message ends after 2 bytes"));
  EXPECT_THAT(answer_to(frame("{}").substr(0, 13), true),
              HasSubstr("message ends after 13 bytes, expected at least 14"));
  EXPECT_THAT(answer_to(frame("{}").substr(0, 13)), HasSubstr("message ends after 13 bytes"))
      << "and then silence";
  EXPECT_THAT(answer_to(""), HasSubstr("nothing was said for 0.2 s"));
}

TEST_F(Hostile, ThousandsOfMalformedMessages) {
  Random random(7);
  const std::string good = frame(R"({"name":"a","identity":"b","memory":5})");
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (auto changes = random.between(1, 3); changes > 0; --changes) {
      bytes[random.next() % bytes.size()] = static_cast<char>(random.next());
    }
    Stranger stranger(folder_.path("s"));
    stranger.send(bytes);
  }
  EXPECT_TRUE(alive());
  EXPECT_TRUE(eventually([&] {
    const Json status = report(folder_.path("s"));
    return status["devices"][0]["jobs"].empty() && status["connections"] == 1;
  })) << "no job and no connection is left but the one that asks";
}

TEST_F(Hostile, AThousandConnections) {
  auto client = Client::connect({.socket = folder_.path("s")}, {.name = "honest"});
  ASSERT_TRUE(client.ok());
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 1000; ++i) {
    crowd.push_back(std::make_unique<Stranger>(folder_.path("s")));
    ASSERT_TRUE(crowd.back()->connected());
    crowd.back()->send(i % 2 == 0 ? "RG" : frame("{}", MessageType::kStatus));
  }
  EXPECT_TRUE(client->acquire().ok()) << "the honest job is served meanwhile";
  EXPECT_TRUE(client->keep_going());
  crowd.clear();
  EXPECT_TRUE(eventually([&] { return report(folder_.path("s"))["connections"] == 2; }));
}

TEST_F(Hostile, TooManyConnectionsAreRefused) {
  TemporaryFolder folder;
  DaemonOptions options = test_daemon(folder);
  options.max_connections = 2;
  options.patience = 5'000'000'000;
  const Process small = start_daemon(options);
  Stranger first(options.socket), second(options.socket);
  EXPECT_EQ(Stranger(options.socket).error(), "the daemon has 2 connections, expected no more");
}

TEST_F(Hostile, WhoDoesNotReadIsNotReadFrom) {
  Stranger deaf(folder_.path("s"));
  const std::string question = frame("{}", MessageType::kStatus);
  for (int i = 0; i < 200; ++i) deaf.send(question);
  EXPECT_TRUE(alive());
}

TEST_F(Hostile, MetricsByHttp) {
  Stranger curl(folder_.path("s"));
  curl.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string text = curl.rest();
  EXPECT_THAT(text, HasSubstr("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(text, HasSubstr("regen_share_device_bytes{device=\"cpu\"} 1073741824\n"));
}

}  // namespace
}  // namespace regen::share
