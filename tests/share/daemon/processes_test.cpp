// Daemon and clients as separate processes: what is killed, restarted or hostile must not touch
// the others.
#include "tests/share/support/processes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "regen/base/random.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

Result<Client> connect(const std::string& socket, JobSpec spec = {}) {
  if (spec.name.empty()) spec.name = "job";
  return Client::connect({.socket = socket}, std::move(spec));
}

// A job of `quanta` quanta that gives way whenever it is asked to.
int work(Board& board, const std::string& socket, int quanta, const JobSpec& spec = {}) {
  auto client = connect(socket, spec);
  if (!client.ok()) return 10;
  for (int done = 0; done < quanta; ++done) {
    if (!client->keep_going() && !client->acquire().ok()) return 11;
    use_device(board);
  }
  client->idle();
  board.reconnections += client->reconnections();
  return 0;
}

std::size_t descriptors_of(pid_t process) {
  std::size_t count = 0;
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST(Share, AJobAloneGoesOnWithoutTheDaemon) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  auto client = connect(folder.path("s"));
  ASSERT_TRUE(client.ok()) << client.error().message;
  EXPECT_FALSE(client->keep_going());
  ASSERT_TRUE(client->acquire().ok());
  daemon.signal(SIGSTOP);  // a stopped daemon cannot answer anything
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(client->keep_going());
  daemon.signal(SIGCONT);
  client->idle();
  EXPECT_FALSE(client->keep_going());
}

TEST(Share, AnUrgentJobInterruptsAndLeaves) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  auto training = connect(folder.path("s"), {.name = "training"});
  ASSERT_TRUE(training->acquire().ok());
  Process urgent([&] {
    auto client = connect(folder.path("s"), {.name = "urgent", .priority = 5});
    return client->acquire().ok() && client->keep_going() ? 0 : 1;  // leaves without a word
  });
  EXPECT_TRUE(eventually([&] { return !training->keep_going(); }));
  ASSERT_TRUE(training->acquire().ok());
  EXPECT_TRUE(training->keep_going());
  EXPECT_EQ(urgent.wait(), 0);
  const Json job = report(folder.path("s"))["devices"][0]["jobs"][0];
  EXPECT_EQ(job["preemptions"], 1);
  EXPECT_EQ(job["grants"], 2);
}

TEST(Share, OnlyTheDaemonCanWriteTheWord) {
  const auto page = ServerPage::create();
  ASSERT_TRUE(page.ok());
  ServerPage server = ServerPage::create().value();
  const Descriptor file = server.take_descriptor();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0),
            MAP_FAILED);
  EXPECT_LT(::write(file.number(), "x", 1), 0);
  EXPECT_NE(::ftruncate(file.number(), 0), 0) << "a shrunk page would kill its readers";
  const auto client = ClientPage::map(file, server.go_value());
  ASSERT_TRUE(client.ok());
  EXPECT_FALSE(client->go());
  server.set_go(true);
  EXPECT_TRUE(client->go());
}

TEST(Share, AFloodOfShortJobsLeavesNothingBehind) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  const std::size_t before = descriptors_of(daemon.id());
  Board& board = new_board();
  for (int wave = 0; wave < 10; ++wave) {
    std::vector<Process> jobs;
    jobs.reserve(20);
    for (int i = 0; i < 20; ++i) {
      jobs.emplace_back([&, i] {
        return work(board, folder.path("s"), 3, {.priority = i % 3, .memory = 1 << 20});
      });
    }
    for (Process& job : jobs) EXPECT_EQ(job.wait(), 0);
  }
  EXPECT_EQ(board.quanta, 600);
  EXPECT_EQ(board.collisions, 0);
  EXPECT_TRUE(eventually([&] { return descriptors_of(daemon.id()) == before; }));
  const Json device = report(folder.path("s"))["devices"][0];
  EXPECT_EQ(device["finished_jobs"], 200);
  EXPECT_EQ(device["used_bytes"], 0);
  EXPECT_TRUE(device["jobs"].empty());
}

TEST(Share, ClientsMayBeKilledAtAnyPoint) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  Board& board = new_board();
  Process survivor([&] { return work(board, folder.path("s"), 400, {.name = "survivor"}); });
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    Process victim([&] {
      return work(board, folder.path("s"), 1'000'000, {.priority = round % 2, .memory = 1 << 20});
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random.between(0, 8000)));
    victim.signal(SIGKILL);
    EXPECT_EQ(victim.wait(), 128 + SIGKILL);
  }
  EXPECT_EQ(survivor.wait(), 0) << "every grant of the dead returned";
  EXPECT_EQ(board.collisions, 0);
  EXPECT_TRUE(eventually([&] { return report(folder.path("s"))["devices"][0]["jobs"].empty(); }));
  EXPECT_EQ(report(folder.path("s"))["devices"][0]["used_bytes"], 0);
}

TEST(Share, ClientsSurviveDaemonsThatAreKilledOrStopped) {
  TemporaryFolder folder;
  DaemonOptions options = test_daemon(folder);
  options.settle = 200'000'000;
  Board& board = new_board();
  std::vector<Process> daemon;
  daemon.push_back(start_daemon(options));
  std::atomic<int>& stop = board.stop;
  const auto job = [&](int number) {
    auto client = connect(options.socket, {.name = "job " + std::to_string(number)});
    if (!client.ok()) return 10;
    while (stop == 0) {
      if (!client->keep_going() && !client->acquire().ok()) return 11;
      use_device(board);
    }
    board.reconnections += client->reconnections();
    return 0;
  };
  std::vector<Process> jobs;
  jobs.reserve(3);
  for (int i = 0; i < 3; ++i) jobs.emplace_back([&, i] { return job(i); });
  for (int restart = 0; restart < 6; ++restart) {
    const int before = board.quanta;
    ASSERT_TRUE(eventually([&] { return board.quanta > before + 30; })) << "restart " << restart;
    ASSERT_TRUE(eventually([&] {
      const Json status = report(options.socket);
      return status.is_object() && status["devices"][0]["jobs"].size() == 3;
    })) << "all are back";
    daemon.back().signal(restart % 2 == 0 ? SIGKILL : SIGTERM);
    EXPECT_EQ(daemon.back().wait(), restart % 2 == 0 ? 128 + SIGKILL : 0);
    daemon.clear();
    daemon.push_back(start_daemon(options));
  }
  stop = 1;
  for (Process& process : jobs) EXPECT_EQ(process.wait(), 0);
  EXPECT_EQ(board.collisions, 0);
  EXPECT_GE(board.reconnections, 3 * 5) << "the last restart may not have been noticed";
}

TEST(Share, AKilledDaemonStopsItsHolderWithoutASystemCall) {
  TemporaryFolder folder;
  Process daemon = start_daemon(test_daemon(folder));
  auto client = connect(folder.path("s"));
  ASSERT_TRUE(client->acquire().ok());
  EXPECT_TRUE(client->keep_going());
  daemon.signal(SIGKILL);
  daemon.wait();
  EXPECT_FALSE(client->keep_going()) << "the kernel changed the word";
}

TEST(Share, GivesUpWhenToldTo) {
  TemporaryFolder folder;
  Process daemon = start_daemon(test_daemon(folder));
  auto client = Client::connect({folder.path("s"), 20'000'000}, {.name = "job"});
  ASSERT_TRUE(client.ok());
  daemon.signal(SIGTERM);
  EXPECT_EQ(daemon.wait(), 0);
  const Status lost = client->acquire();
  ASSERT_FALSE(lost.ok());
  EXPECT_THAT(lost.error().message, HasSubstr("has been gone for more than 0.02 s"));
  EXPECT_EQ(connect(folder.path("s")).error().code, ErrorCode::kMissing);
}

TEST(Share, OneDaemonForEachSocket) {
  TemporaryFolder folder;
  const DaemonOptions options = test_daemon(folder);
  Process first = start_daemon(options);
  struct stat facts {};
  ASSERT_EQ(::stat(options.socket.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  const Status second = serve(options, [] {});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message,
              HasSubstr("a daemon serves there already (process " + std::to_string(first.id())));
  first.signal(SIGKILL);
  first.wait();
  EXPECT_TRUE(std::filesystem::exists(options.socket)) << "stale";
  Process third = start_daemon(options);
  EXPECT_TRUE(report(options.socket).is_object());
  third.signal(SIGINT);
  EXPECT_EQ(third.wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(options.socket));
}

TEST(Share, NeverReplacesAFileThatIsNoSocket) {
  TemporaryFolder folder;
  const DaemonOptions options = test_daemon(folder);
  ::close(::open(options.socket.c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_THAT(serve(options, [] {}).error().message, HasSubstr("that is no socket"));
  EXPECT_TRUE(std::filesystem::exists(options.socket));
}

TEST(Share, RefusedJobsAreToldWhy) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  auto first = connect(folder.path("s"), {.name = "a", .memory = Bytes{1} << 29});
  ASSERT_TRUE(first.ok());
  const auto second = connect(folder.path("s"), {.name = "b", .memory = Bytes{1} << 30});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kInfeasible);
  EXPECT_THAT(second.error().message, HasSubstr("expected at most 536,870,912"));
}

}  // namespace
}  // namespace regen::share
