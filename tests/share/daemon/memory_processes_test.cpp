// Memory and restarts with a real daemon and real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/share/support/processes.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

DaemonOptions small_device(const TemporaryFolder& folder) {
  DaemonOptions options = test_daemon(folder);
  options.devices = {{"cpu", 1000}};
  return options;
}

Json device(const DaemonOptions& options) {
  return report(options.socket)["devices"][0];
}

JobSpec training(Bytes memory = 900) {
  return {.name = "training", .memory = memory, .points = {{900, 100}, {500, 120}}};
}

// Says whether it was admitted by its status; stays until it is killed.
Process newcomer(const DaemonOptions& options, const JobSpec& spec) {
  return Process([&] {
    auto client = Client::connect({.socket = options.socket}, spec);
    if (!client.ok()) return client.error().code == ErrorCode::kLimit ? 3 : 1;
    if (!client->acquire().ok()) return 2;
    ::pause();
    return 0;
  });
}

bool has_jobs(const DaemonOptions& options, std::size_t count) {
  return eventually([&] { return device(options)["jobs"].size() == count; });
}

TEST(ShareMemory, ARunningJobShrinksForANewcomerAndGrowsBack) {
  TemporaryFolder folder;
  const DaemonOptions options = small_device(folder);
  const Process daemon = start_daemon(options);
  auto client = Client::connect({.socket = options.socket}, training());
  ASSERT_TRUE(client.ok()) << client.error().message;
  EXPECT_EQ(client->byte_limit(), 900);
  ASSERT_TRUE(client->acquire().ok());
  {
    const Process other = newcomer(options, {.name = "other", .memory = 500});
    ASSERT_TRUE(eventually([&] { return client->byte_limit() == 500; }));
    EXPECT_TRUE(client->keep_going()) << "the newcomer does not even have a place in the queue";
    EXPECT_EQ(device(options)["newcomers"][0]["name"], "other");
    EXPECT_EQ(device(options)["jobs"][0]["memory_state"], "shrinking");
    client->confirm(480);
    EXPECT_TRUE(has_jobs(options, 2));
    const Json job = device(options)["jobs"][0];
    EXPECT_EQ(job["limit_bytes"], 500);
    EXPECT_EQ(job["used_bytes"], 480);
    EXPECT_EQ(job["memory_bytes"], 900);
  }
  EXPECT_TRUE(eventually([&] { return client->byte_limit() == 900; })) << "the other one died";
  client->confirm(950);
  EXPECT_TRUE(eventually([&] { return device(options)["jobs"][0]["over_limit"] == true; }));
}

TEST(ShareMemory, OrdersAreTakenBackWhenTheNewcomerDiesOrMayWaitNoLonger) {
  TemporaryFolder folder;
  DaemonOptions options = small_device(folder);
  options.admission = 300'000'000;
  const Process daemon = start_daemon(options);
  auto client = Client::connect({.socket = options.socket}, training());
  ASSERT_TRUE(client.ok());
  {
    const Process other = newcomer(options, {.name = "other", .memory = 500});
    ASSERT_TRUE(eventually([&] { return client->byte_limit() == 500; }));
  }
  ASSERT_TRUE(eventually([&] { return client->byte_limit() == 900; }));
  const auto refused = Client::connect({.socket = options.socket}, {.name = "b", .memory = 500});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_THAT(refused.error().message, HasSubstr("'training' has 900 bytes of 500"));
  EXPECT_TRUE(eventually([&] { return client->byte_limit() == 900; }));
}

TEST(ShareMemory, ACurveThatComesLaterCounts) {
  TemporaryFolder folder;
  const DaemonOptions options = small_device(folder);
  const Process daemon = start_daemon(options);
  auto client = Client::connect({.socket = options.socket}, {.name = "a", .memory = 900});
  ASSERT_TRUE(client.ok());
  const auto refused = Client::connect({.socket = options.socket}, {.name = "b", .memory = 500});
  EXPECT_EQ(
      refused.error().message,
      "job 'b' asks for 500 bytes on device 'cpu', expected at most 100: 1 job there have 900 "
      "of 1,000; the least bytes of 2 jobs sum to 1,400, expected at most 1,000");
  ASSERT_TRUE(client->update({.persistent_bytes = 300, .points = {{900, 1}, {400, 2}}}).ok());
  std::optional<Process> other(newcomer(options, {.name = "b", .memory = 500}));
  ASSERT_TRUE(eventually([&] { return client->byte_limit() == 400; }));
  client->confirm(400);
  EXPECT_TRUE(has_jobs(options, 2));
  const Status none = client->update({.points = {{950, 1}}});
  EXPECT_THAT(none.error().message, HasSubstr("may use 900 bytes, expected at least the 950"));
  other.reset();  // it holds the device
  ASSERT_TRUE(client->acquire().ok()) << "an update that was refused here changes nothing";
}

// Two jobs of 800 bytes on a device of 1000: each runs with all its bytes, in turns.
TEST(ShareMemory, JobsTakeTurnsWithTheirTransientMemory) {
  TemporaryFolder folder;
  DaemonOptions options = small_device(folder);
  const Process daemon = start_daemon(options);
  Board& board = new_board();
  // What both have there together; only one of them has more than its 100.
  std::atomic<int>& there = board.owner;
  const auto run = [&] {
    Bytes mine = 100;
    there += 100;
    auto client = Client::connect(
        {.socket = options.socket},
        {.name = "turns", .memory = 800, .persistent_bytes = 100, .deepest = Depth::kSpill});
    if (!client.ok()) return 10;
    client->on_make_room([&](Depth) {
      there -= static_cast<int>(mine - 100);
      mine = 100;
      ++board.reconnections;  // here: rooms made
      return mine;
    });
    ++board.stop;  // here: jobs that have begun
    if (!eventually([&] { return board.stop == 2; })) return 12;
    for (int done = 0; done < 60; ++done) {
      if (!client->keep_going() && !client->acquire().ok()) return 11;
      there += static_cast<int>(800 - mine);
      mine = 800;
      if (there > 1000) ++board.collisions;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      ++board.quanta;
      if (done % 10 == 9) client->idle();
    }
    there -= static_cast<int>(mine);
    return 0;
  };
  Process a(run), b(run);
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(b.wait(), 0);
  EXPECT_EQ(board.quanta, 120);
  EXPECT_EQ(board.collisions, 0);
  EXPECT_GT(board.reconnections, 2);
  EXPECT_EQ(there, 0);
}

TEST(ShareMemory, ALowerJobLeavesForTheTimeBeing) {
  TemporaryFolder folder;
  const DaemonOptions options = small_device(folder);
  const Process daemon = start_daemon(options);
  auto low = Client::connect(
      {.socket = options.socket},
      {.name = "low", .memory = 800, .persistent_bytes = 600, .deepest = Depth::kLeave});
  ASSERT_TRUE(low.ok());
  Depth asked = Depth::kPause;
  low->on_make_room([&](Depth depth) {
    asked = depth;
    return Bytes{0};
  });
  ASSERT_TRUE(low->acquire().ok());
  Process high = newcomer(options, {.name = "high", .priority = 1, .memory = 700});
  ASSERT_TRUE(eventually([&] { return !low->keep_going(); }));
  std::thread killer([&] {
    EXPECT_TRUE(has_jobs(options, 2));
    EXPECT_EQ(device(options)["jobs"][0]["memory_state"], "away");
    EXPECT_EQ(device(options)["used_bytes"], 700);
    high.signal(SIGKILL);
  });
  EXPECT_TRUE(low->acquire().ok()) << "returns when the higher one is gone";
  killer.join();
  EXPECT_EQ(asked, Depth::kLeave);
  EXPECT_EQ(device(options)["jobs"][0]["memory_state"], "settled");
}

// What it said that it used before it made room is no longer true, and others have those bytes.
TEST(ShareMemory, AParkedJobWhoseLimitRisesDoesNotClaimWhatItUsedBefore) {
  TemporaryFolder folder;
  const DaemonOptions options = small_device(folder);
  const Process daemon = start_daemon(options);
  auto parked = Client::connect({.socket = options.socket}, {.name = "parked",
                                                             .memory = 400,
                                                             .points = {{900, 1}, {400, 2}},
                                                             .persistent_bytes = 100,
                                                             .deepest = Depth::kSpill});
  ASSERT_TRUE(parked.ok()) << parked.error().message;
  parked->on_make_room([](Depth) { return Bytes{100}; });
  ASSERT_TRUE(parked->acquire().ok());
  parked->confirm(390);
  parked->idle();
  const JobSpec urgent{.name = "urgent",
                       .priority = 1,
                       .memory = 850,
                       .persistent_bytes = 50,
                       .deepest = Depth::kSpill};
  const Process other = newcomer(options, urgent);
  ASSERT_TRUE(eventually([&] {
    parked->poll();
    return device(options)["used_bytes"] == 950;
  }));
  ASSERT_TRUE(ask(options.socket, {MessageType::kChange, {{"job", "parked"}, {"memory", 900}}},
                  MessageType::kChanged)
                  .ok());
  ASSERT_TRUE(eventually([&] {
    parked->poll();
    return parked->byte_limit() == 900;
  }));
  EXPECT_EQ(device(options)["jobs"][0]["used_bytes"], 100);
  EXPECT_EQ(device(options)["used_bytes"], 950);
}

// --- Restarts

TEST(ShareRestart, NobodyGetsADeviceThatTheFormerHolderStillUses) {
  TemporaryFolder folder;
  const DaemonOptions options = small_device(folder);  // does not settle at all
  Process first = start_daemon(options);
  auto slow = Client::connect({.socket = options.socket}, {.name = "slow"});
  ASSERT_TRUE(slow->acquire().ok());
  first.signal(SIGKILL);
  first.wait();
  const Process second = start_daemon(options);
  Process other([&] {
    auto client = Client::connect({.socket = options.socket}, {.name = "other"});
    return client.ok() && client->acquire().ok() ? 0 : 1;
  });
  ASSERT_TRUE(eventually([&] { return device(options)["closed"] == true; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the quantum takes its time
  const Json jobs = device(options)["jobs"];
  for (const Json& job : jobs) EXPECT_NE(job["state"], "holding");
  slow->idle();  // to a daemon that is no more
  EXPECT_EQ(other.wait(), 0) << "and it need not come back for that";
}

TEST(ShareRestart, BytesOfAJobThatHasNotComeBackAreItsOwn) {
  TemporaryFolder folder;
  const DaemonOptions options = small_device(folder);
  Process first = start_daemon(options);
  auto late = Client::connect({.socket = options.socket}, training());
  ASSERT_TRUE(late.ok());
  std::optional<Process> dies(newcomer(options, {.name = "dies", .memory = 100}));
  ASSERT_TRUE(has_jobs(options, 2));
  first.signal(SIGKILL);
  first.wait();
  dies->signal(SIGSTOP);
  const Process second = start_daemon(options);
  ASSERT_TRUE(has_jobs(options, 2));
  EXPECT_EQ(device(options)["jobs"][0]["memory_state"], "absent");
  EXPECT_EQ(device(options)["used_bytes"], 1000);
  const auto refused = Client::connect({.socket = options.socket}, {.name = "b", .memory = 100});
  EXPECT_FALSE(refused.ok()) << "an absent job cannot be asked to shrink";
  dies.reset();
  ASSERT_TRUE(has_jobs(options, 1));
  const auto fits = Client::connect({.socket = options.socket}, {.name = "b", .memory = 100});
  EXPECT_TRUE(fits.ok());
  ASSERT_TRUE(late->acquire().ok());
  EXPECT_EQ(late->byte_limit(), 900);
  EXPECT_EQ(late->reconnections(), 1);
}

// The job itself does not know: it comes back with what it asked for first.
TEST(ShareRestart, WhatAnOperatorChangedStaysChanged) {
  TemporaryFolder folder;
  const DaemonOptions options = small_device(folder);
  std::optional<Process> daemon(start_daemon(options));
  auto job = Client::connect({.socket = options.socket}, training());
  ASSERT_TRUE(job.ok());
  const auto change = [&](Json what) {
    what["job"] = "training";
    return ask(options.socket, {MessageType::kChange, std::move(what)}, MessageType::kChanged).ok();
  };
  ASSERT_TRUE(change({{"priority", 7}, {"memory", 600}}));
  ASSERT_TRUE(change({{"weight", 2.5}}));
  for (int restart = 0; restart < 2; ++restart) {
    daemon->signal(SIGKILL);
    daemon->wait();
    daemon.emplace(start_daemon(options));
    ASSERT_TRUE(job->acquire().ok());
    EXPECT_EQ(job->reconnections(), restart + 1);
    const Json found = device(options)["jobs"][0];
    EXPECT_EQ(found["priority"], 7);
    EXPECT_EQ(found["weight"], 2.5);
    EXPECT_EQ(found["memory_bytes"], 600);
    EXPECT_EQ(job->byte_limit(), 500) << "the point of its curve within 600";
    job->idle();
  }
}

// --- Clients that do not end as they should

TEST(ShareHung, ChildrenDoNotKeepTheGrantOfADeadJob) {
  TemporaryFolder folder;
  const DaemonOptions options = small_device(folder);
  const Process daemon = start_daemon(options);
  Board& board = new_board();
  Process job([&] {
    auto client = Client::connect({.socket = options.socket}, {.name = "parent"});
    if (!client->acquire().ok()) return 1;
    const pid_t child = ::fork();  // has the connection too
    if (child > 0) {
      board.owner = child;
      ++board.quanta;
    }
    ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return board.quanta == 1; }));
  const pid_t child = board.owner;
  ASSERT_GT(child, 0);
  job.signal(SIGKILL);
  job.wait();
  auto next = Client::connect({.socket = options.socket}, {.name = "next"});
  EXPECT_TRUE(next->acquire().ok());
  ::kill(child, SIGKILL);
}

TEST(ShareHung, AHolderThatDoesNotAnswerIsKilledWhereTheOperatorSaysSo) {
  TemporaryFolder folder;
  DaemonOptions options = small_device(folder);
  options.holder_patience = 50'000'000;
  options.kill_hung = true;
  const Process daemon = start_daemon(options);
  Process hung([&] {
    ::signal(SIGTERM, SIG_IGN);  // does not even listen to that
    auto client = Client::connect({.socket = options.socket}, {.name = "hung"});
    if (!client->acquire().ok()) return 1;
    ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] {
    const Json jobs = device(options)["jobs"];
    return jobs.size() == 1 && jobs[0]["state"] == "holding";
  }));
  auto urgent = Client::connect({.socket = options.socket}, {.name = "urgent", .priority = 1});
  EXPECT_TRUE(urgent->acquire().ok());
  EXPECT_EQ(hung.wait(), 128 + SIGKILL);
}

}  // namespace
}  // namespace regen::share
