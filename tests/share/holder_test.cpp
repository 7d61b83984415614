// A job's hold on the device: kept while nobody waits, given back as soon as somebody does.
#include "regen/share/holder.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/share/processes.h"

namespace regen::share {
namespace {

std::shared_ptr<Holder> join(const TemporaryFolder& folder, const JobSpec& spec) {
  auto holder = Holder::join({.socket = folder.path("s")}, spec);
  EXPECT_TRUE(holder.ok()) << holder.error().message;
  return *holder;
}

Client connect(const TemporaryFolder& folder, const JobSpec& spec) {
  auto client = Client::connect({.socket = folder.path("s")}, spec);
  EXPECT_TRUE(client.ok()) << client.error().message;
  return std::move(*client);
}

Json job_of(const TemporaryFolder& folder, const std::string& name) {
  const Json all = report(folder.path("s"));
  for (const Json& job : all["devices"][0]["jobs"]) {
    if (job["name"] == name) return job;
  }
  return nullptr;
}

TEST(Holder, KeepsTheDeviceBetweenUsesWhileNobodyWaits) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  const auto holder = join(folder, {.name = "train"});
  for (int step = 0; step < 100; ++step) {
    ASSERT_TRUE(holder->begin().ok());
    EXPECT_TRUE(holder->open());
    holder->end();
  }
  const Json job = job_of(folder, "train");
  EXPECT_EQ(job["grants"], 1) << "no word to the daemon but the first";
  EXPECT_EQ(job["state"], "holding");
  EXPECT_EQ(holder->returns(), 0);
}

// A job that rests does not notice by itself: nothing is called here while the other one asks.
TEST(Holder, GivesAKeptDeviceBackOnlyAfterTheDeviceHasFinished) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  const auto holder = join(folder, {.name = "train"});
  std::atomic<int> finished = 0;  // the last round whose work the device has done
  for (int round = 1; round <= 20; ++round) {
    ASSERT_TRUE(holder->begin().ok());
    holder->end({.finish = [&finished, round] { finished = round; }});
    Client other = connect(folder, {.name = "other", .priority = round % 2});
    ASSERT_TRUE(other.acquire().ok());
    EXPECT_EQ(finished, round);
    EXPECT_TRUE(eventually([&] { return holder->returns() == round; }));
  }
  EXPECT_TRUE(eventually([&] { return job_of(folder, "train")["state"] == "idle"; }));
}

TEST(Holder, IsNotGivenBackWhileWorkIsUnderWay) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  const auto holder = join(folder, {.name = "train"});
  ASSERT_TRUE(holder->begin().ok());
  ASSERT_TRUE(holder->begin().ok());  // inside the other
  Board& board = new_board();
  Process urgent([&] {
    auto client = Client::connect({.socket = folder.path("s")}, {.name = "urgent", .priority = 1});
    if (!client.ok() || !client->acquire().ok()) return 1;
    ++board.windows;
    return 0;
  });
  EXPECT_TRUE(eventually([&] { return !holder->open(); }));
  holder->end();
  EXPECT_EQ(board.windows, 0) << "the outer work goes on";
  ASSERT_TRUE(holder->wait().ok());
  EXPECT_EQ(board.windows, 1);
  EXPECT_TRUE(holder->open());
  EXPECT_EQ(holder->pauses(), 1);
  holder->end();
  EXPECT_EQ(urgent.wait(), 0);
}

TEST(Holder, ARequestThatIsAnsweredGivesBackAtOnceIfSomebodyWaits) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  const auto holder = join(folder, {.name = "infer", .priority = 1});
  const auto training = join(folder, {.name = "train"});
  for (int request = 1; request <= 20; ++request) {
    ASSERT_TRUE(training->begin().ok());
    std::thread thread([&] {
      EXPECT_TRUE(holder->begin().ok());
      holder->end({.gives_back = true});
    });
    EXPECT_TRUE(eventually([&] { return !training->open(); }));
    ASSERT_TRUE(training->wait().ok());
    training->end();
    thread.join();
    EXPECT_EQ(holder->returns(), request);
  }
  EXPECT_EQ(training->pauses(), 20);
}

// The kernel wakes the watcher of a resting job when the daemon is killed, and the job comes back.
TEST(Holder, SurvivesADaemonThatIsKilledWhileItRests) {
  TemporaryFolder folder;
  auto options = test_daemon(folder);
  auto daemon = std::make_unique<Process>(start_daemon(options));
  const auto holder = join(folder, {.name = "train"});
  for (int restart = 1; restart <= 5; ++restart) {
    ASSERT_TRUE(holder->begin().ok());
    holder->end();
    daemon->signal(SIGKILL);
    EXPECT_EQ(daemon->wait(), 128 + SIGKILL);
    EXPECT_TRUE(eventually([&] { return holder->returns() == restart; })) << "nobody was woken";
    daemon = std::make_unique<Process>(start_daemon(options));
    ASSERT_TRUE(holder->begin().ok());
    EXPECT_EQ(holder->reconnections(), restart);
    EXPECT_EQ(job_of(folder, "train")["state"], "holding");
    holder->end();
  }
}

TEST(Holder, EndsWhateverItWasDoing) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  for (int i = 0; i < 50; ++i) {
    const auto holder = join(folder, {.name = "short"});
    if (i % 3 > 0) {
      ASSERT_TRUE(holder->begin().ok());
    }
    if (i % 3 > 1) holder->end();
  }
  EXPECT_TRUE(eventually([&] { return report(folder.path("s"))["devices"][0]["jobs"].empty(); }));
}

TEST(Holder, RunsGoOneAtATimeAndOthersMayHoldBeside) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  const auto holder = join(folder, {.name = "train"});
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(holder->begin().ok());
        {
          Holder::Run run(*holder);
          ASSERT_TRUE(run.begin().ok());
          const int now = ++inside;
          most = std::max(most.load(), now);
          --inside;
        }
        holder->end();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace regen::share
