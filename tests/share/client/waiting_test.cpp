// Waits for the daemon: what is said of them, and what is left when they are interrupted.
#include "regen/share/client/waiting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <thread>

#include "regen/base/progress/progress_board.h"
#include "regen/share/client/device_lease.h"
#include "tests/share/support/processes.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

// --- the place in the queue

Json newcomer(const std::string& identity, int priority) {
  return {{"identity", identity}, {"priority", priority}};
}

Json job(const std::string& identity, const std::string& state) {
  return {{"identity", identity}, {"state", state}};
}

TEST(QueueText, HigherPriorityThenEarlier) {
  const Json report{{"devices",
                     {{{"jobs", {job("d", "holding")}},
                       {"newcomers", {newcomer("a", 0), newcomer("b", 1), newcomer("c", 0)}}}}}};
  EXPECT_EQ(queue_text(report, "b"), "place 1 of 3");
  EXPECT_EQ(queue_text(report, "a"), "place 2 of 3");
  EXPECT_EQ(queue_text(report, "c"), "place 3 of 3");
  EXPECT_EQ(queue_text(report, "d"), "no other job waits");
  EXPECT_EQ(queue_text(report, "e"), "");
}

TEST(QueueText, CountsOtherJobsOfTheDevice) {
  const Json jobs{job("a", "waiting"), job("b", "waiting"), job("c", "holding"),
                  job("d", "waiting")};
  const Json report{{"devices", {{{"jobs", {job("x", "waiting")}}}, {{"jobs", jobs}}}}};
  EXPECT_EQ(queue_text(report, "a"), "2 other jobs wait");
  EXPECT_EQ(queue_text(report, "c"), "3 other jobs wait");
  EXPECT_EQ(queue_text(report, "x"), "no other job waits");
}

TEST(QueueText, OfAReportThatIsNoneIsEmpty) {
  for (const char* text : {"null", "[]", "{}", R"({"devices": 3})", R"({"devices": [7, {}]})",
                           R"({"devices": [{"newcomers": [1, {"identity": 2}], "jobs": [[]]}]})"}) {
    EXPECT_EQ(queue_text(Json::parse(text), "a"), "") << text;
  }
  const Json odd =
      Json::parse(R"({"devices": [{"newcomers": [{"identity": "a", "priority": "x"}]}]})");
  EXPECT_EQ(queue_text(odd, "a"), "place 1 of 1");
}

// --- with a daemon

class WaitingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    DaemonOptions options = test_daemon(folder_);
    options.devices = {{"gpu", 100}};
    daemon_ = start_daemon(options);
  }

  ClientOptions options(bool interruptible = true) const {
    return {.socket = folder_.path("s"), .interrupt = interruptible ? &interrupt_ : nullptr};
  }
  Client connect(const std::string& name, Bytes memory, Bytes least = 0) const {
    auto client =
        Client::connect(options(), {.name = name, .memory = memory, .least_bytes = least});
    EXPECT_TRUE(client.ok()) << client.error().message;
    return std::move(*client);
  }
  Json device() const { return report(folder_.path("s"))["devices"][0]; }
  std::string state_of(const std::string& name) const {
    const Json all = device();
    for (const Json& one : all["jobs"]) {
      if (one["name"] == name) return one["state"].get<std::string>();
    }
    return "";
  }

  TemporaryFolder folder_;
  Process daemon_;
  std::atomic<bool> interrupt_{false};
};

TEST_F(WaitingTest, ForAdmissionEndsWithAnInterrupt) {
  const Client first = connect("first", 80, 20);  // could do with less, but does not listen
  std::thread late([&] {
    const auto client = Client::connect(options(), {.name = "late", .memory = 80});
    ASSERT_FALSE(client.ok());
    EXPECT_EQ(client.error().code, ErrorCode::kLimit);
    EXPECT_EQ(client.error().message, "interrupted while job 'late' waited for admission");
  });
  EXPECT_TRUE(eventually([&] { return device()["newcomers"].size() == 1; }));
  interrupt_ = true;
  late.join();
  EXPECT_TRUE(eventually([&] { return device()["newcomers"].empty(); }));
}

TEST_F(WaitingTest, ForTheDeviceEndsWithAnInterruptAndMayBeTriedAgain) {
  Client first = connect("first", 40);
  Client second = connect("second", 40);
  ASSERT_TRUE(first.acquire().ok());
  std::thread other([&] {
    const Status status = second.acquire();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "interrupted while job 'second' waited for the device");
  });
  EXPECT_TRUE(eventually([&] { return state_of("second") == "waiting"; }));
  interrupt_ = true;
  other.join();
  EXPECT_FALSE(second.holding());
  EXPECT_TRUE(eventually([&] { return state_of("second") == "idle"; }));
  interrupt_ = false;
  first.idle();
  ASSERT_TRUE(second.acquire().ok());
  EXPECT_TRUE(second.keep_going());
}

// A grant that is under way when the interrupt comes is not taken for a later one.
TEST_F(WaitingTest, AGrantThatCameTooLateIsNone) {
  struct sigaction wakes {};
  wakes.sa_handler = [](int) {};  // the call that sleeps ends, as with Ctrl-C
  ASSERT_EQ(::sigaction(SIGUSR1, &wakes, nullptr), 0);
  Client first = connect("first", 40);
  Client second = connect("second", 40);
  int interrupted = 0;
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(first.acquire().ok());
    std::thread other([&] { interrupted += second.acquire().ok() ? 0 : 1; });
    while (state_of("second") != "waiting") std::this_thread::yield();
    std::thread presses([&] {
      interrupt_ = true;
      ::pthread_kill(other.native_handle(), SIGUSR1);
    });
    first.idle();
    presses.join();
    other.join();
    interrupt_ = false;
    if (second.holding()) {
      second.idle();
      continue;
    }
    ASSERT_TRUE(first.acquire().ok()) << "the device is not held without knowledge of it";
    std::thread again([&] { EXPECT_TRUE(second.acquire().ok()); });
    while (state_of("second") != "waiting") std::this_thread::yield();
    EXPECT_FALSE(second.holding()) << "an old grant";
    first.idle();
    again.join();
    EXPECT_TRUE(second.keep_going());
    second.idle();
  }
  EXPECT_GT(interrupted, 0);
}

TEST_F(WaitingTest, InTheMiddleOfAStepIsNotInterrupted) {
  Client first = connect("first", 40);
  Client second = connect("second", 40);
  ASSERT_TRUE(first.acquire().ok());
  interrupt_ = true;
  std::thread other([&] { EXPECT_TRUE(second.acquire(/*in_step=*/true).ok()); });
  EXPECT_TRUE(eventually([&] { return state_of("second") == "waiting"; }));
  first.idle();
  other.join();
  EXPECT_TRUE(second.keep_going());
}

TEST_F(WaitingTest, ForADaemonThatHasGoneEndsWithAnInterrupt) {
  Client client = connect("job", 40);
  daemon_.signal(SIGKILL);
  daemon_.wait();
  std::thread presses([&] { interrupt_ = true; });
  const Status status = client.acquire();
  presses.join();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("interrupted"));
}

TEST_F(WaitingTest, SaysThePlaceInTheQueue) {
  ProgressBoard& board = ProgressBoard::of_process();
  const Client first = connect("first", 80, 20);
  board.read_events(true);
  std::thread late([&] {
    const auto client = Client::connect(options(), {.name = "late", .memory = 80});
    EXPECT_FALSE(client.ok());
  });
  std::string note;
  EXPECT_TRUE(eventually([&] {
    for (const ProgressState& state : board.take_events()) {
      if (state.stage == "wait") note = state.subject + ": " + state.note;
    }
    return note == "for admission: place 1 of 1";
  })) << note;
  interrupt_ = true;
  late.join();
  const auto events = board.take_events();
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(events[0].stage == "wait" && events[0].ended);
  board.read_events(false);
}

}  // namespace
}  // namespace regen::share
