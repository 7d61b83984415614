// The device lease: kept while no other job waits, given back as soon as one does.
#include "regen/share/client/device_lease.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>

#include "regen/share/daemon/use_files.h"
#include "regen/share/protocol/listen_socket.h"
#include "regen/share/protocol/unix_socket.h"
#include "tests/share/support/processes.h"

namespace regen::share {
namespace {

std::shared_ptr<DeviceLease> join(const TemporaryFolder& folder, const JobSpec& spec) {
  auto holder = DeviceLease::join({.socket = folder.path("s")}, spec);
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

TEST(DeviceLease, KeepsTheDeviceBetweenUsesWhileNobodyWaits) {
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

// A job that rests sees nothing by itself: nothing is called here while the other one asks.
TEST(DeviceLease, GivesAKeptDeviceBackOnlyAfterTheDeviceHasFinished) {
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

TEST(DeviceLease, IsNotGivenBackWhileWorkIsUnderWay) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  const auto holder = join(folder, {.name = "train"});
  ASSERT_TRUE(holder->begin().ok());
  ASSERT_TRUE(holder->begin().ok());  // inside the other
  Board& board = new_board();
  Process urgent([&] {
    auto client = Client::connect({.socket = folder.path("s")}, {.name = "urgent", .priority = 1});
    if (!client.ok() || !client->acquire().ok()) return 1;
    ++board.quanta;
    return 0;
  });
  EXPECT_TRUE(eventually([&] { return !holder->open(); }));
  holder->end();
  EXPECT_EQ(board.quanta, 0) << "the outer work goes on";
  ASSERT_TRUE(holder->wait().ok());
  EXPECT_EQ(board.quanta, 1);
  EXPECT_TRUE(holder->open());
  EXPECT_EQ(holder->pauses(), 1);
  holder->end();
  EXPECT_EQ(urgent.wait(), 0);
}

TEST(DeviceLease, ARequestThatIsAnsweredGivesBackAtOnceIfSomebodyWaits) {
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

TEST(DeviceLease, TellsTheDaemonHowLongRequestsTook) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  const auto holder = join(folder, {.name = "infer"});
  ASSERT_TRUE(holder->begin().ok());
  holder->end();  // a step is no request
  EXPECT_TRUE(job_of(folder, "infer")["requests"].is_null());
  const auto request = [&] {
    ASSERT_TRUE(holder->begin().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    holder->end({.gives_back = true});
  };
  request();
  EXPECT_TRUE(eventually([&] { return job_of(folder, "infer")["requests"] == 1; }));
  int requests = 1;
  EXPECT_TRUE(eventually([&] {
    request();
    ++requests;
    return job_of(folder, "infer")["requests"] > 1;
  })) << "though no other job waits, and nothing else is said to the daemon";
  const Json job = job_of(folder, "infer");
  EXPECT_LE(job["requests"], requests);
  EXPECT_EQ(job["grants"], 1);
  EXPECT_GE(job["request_p50_seconds"], 0.0019);
  EXPECT_GE(job["request_p95_seconds"], job["request_p50_seconds"]);
}

// Of an earlier release, which would take the message for an error.
TEST(DeviceLease, ADaemonThatDoesNotKnowItIsToldNothing) {
  TemporaryFolder folder;
  const auto listener =
      ListenSocket::open(folder.path("s"), 0600, {.name = "a daemon", .expected = "none"}).value();
  UseFiles files = UseFiles::open(folder.path("use")).value();
  std::vector<MessageType> heard;
  std::thread daemon([&] {
    pollfd asked{.fd = listener.listener(), .events = POLLIN, .revents = 0};
    ::poll(&asked, 1, -1);
    const Descriptor socket(::accept(listener.listener(), nullptr, nullptr));
    ServerPage page = ServerPage::create().value();
    UseFile use = files.make().value();
    FrameReader reader(Direction::kToDaemon);
    char buffer[4096];
    for (ssize_t count = 0; (count = ::recv(socket.number(), buffer, sizeof buffer, 0)) > 0;) {
      reader.append({buffer, static_cast<std::size_t>(count)});
      for (auto next = reader.next(); next.ok() && next->has_value(); next = reader.next()) {
        heard.push_back((**next).type);
        const bool registers = heard.back() == MessageType::kRegister;
        if (!registers && heard.back() != MessageType::kAcquire) continue;
        const Descriptor shown = page.take_descriptor();
        const Descriptor share = use.take_share();
        std::vector<int> extra{shown.number(), share.number()};
        if (!registers) extra.clear();
        if (!registers) page.set_go(true);
        const Json body =
            registers ? Json{{"job", 1}, {"go", page.go_value()}, {"device", 0}} : Json::object();
        const auto type = registers ? MessageType::kRegistered : MessageType::kGranted;
        send_to(socket.number(), encode({type, body}), extra, 0);
      }
    }
  });
  {
    const auto holder = join(folder, {.name = "infer"});
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(holder->begin().ok());
      holder->end({.gives_back = true});
    }
  }
  daemon.join();
  EXPECT_EQ(heard[0], MessageType::kRegister);
  EXPECT_EQ(heard[1], MessageType::kAcquire);
  EXPECT_EQ(std::count(heard.begin(), heard.end(), MessageType::kRequests), 0);
}

// The kernel wakes the watcher of a resting job when the daemon is killed, and the job comes back.
TEST(IdlePredictor, IsPatientWithWhoComesBackAndOnlyAsLongAsThatTakes) {
  IdlePredictor habit;
  EXPECT_EQ(habit.patience(), 0);  // nothing is known yet
  habit.worked(100'000'000);
  habit.rested(100'000);
  EXPECT_EQ(habit.patience(), kMinKeepTime);
  for (int i = 0; i < 100; ++i) habit.rested(1'500'000);
  EXPECT_GE(habit.patience(), 2'999'000);
  EXPECT_LE(habit.patience(), 3'000'000);
  for (int i = 0; i < 100; ++i) habit.rested(3'900'000);
  EXPECT_EQ(habit.patience(), kMaxShortIdle);
  habit.rested(kMaxShortIdle + 1);
  EXPECT_EQ(habit.patience(), 0);  // its idle time was long: waiting jobs get the device at once
  habit.rested(3'900'000);
  EXPECT_EQ(habit.patience(), kMaxShortIdle);
}

TEST(IdlePredictor, LetsADeviceIdleForATenthOfTheWorkAtMost) {
  IdlePredictor habit;
  habit.rested(3'000'000);
  habit.worked(5'000'000);
  EXPECT_EQ(habit.patience(), kMinKeepTime);
  habit.worked(20'000'000);
  EXPECT_EQ(habit.patience(), 2'000'000);
  habit.worked(1'000'000'000);
  EXPECT_EQ(habit.patience(), kMaxShortIdle);
}

TEST(DeviceLease, SurvivesADaemonThatIsKilledWhileItRests) {
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

// Nothing is called here until the job has joined the new daemon.
TEST(DeviceLease, JoinsANewDaemonWhileItRests) {
  TemporaryFolder folder;
  const auto options = test_daemon(folder);
  auto daemon = std::make_unique<Process>(start_daemon(options));
  const auto holder = join(folder, {.name = "train"});
  for (int restart = 1; restart <= 5; ++restart) {
    if (restart % 2 == 0) {
      ASSERT_TRUE(holder->begin().ok());
      holder->end();
    }
    daemon->signal(SIGKILL);
    daemon->wait();
    daemon = std::make_unique<Process>(start_daemon(options));
    EXPECT_TRUE(eventually([&] { return holder->reconnections() == restart; }));
    EXPECT_EQ(job_of(folder, "train")["state"], "idle");
  }
}

// Counts what it has; 100 of it cannot move.
class CountedMemory final : public MovableMemory {
 public:
  Bytes make_room(Depth depth) override {
    asked = depth;
    ++rooms;
    return 100;
  }
  Status come_back() override {
    ++returns;
    return {};
  }
  std::atomic<Depth> asked = Depth::kPause;
  std::atomic<int> rooms = 0;
  std::atomic<int> returns = 0;
};

DaemonOptions small_device(const TemporaryFolder& folder) {
  DaemonOptions options = test_daemon(folder);
  options.devices = {{"cpu", 1000}};
  return options;
}

const Curve kSpills{
    .persistent_bytes = 100, .points = {{900, 1}, {400, 2}}, .deepest = Depth::kSpill};

TEST(DeviceLease, TellsItsCurveOnlyBetweenTwoPiecesOfWork) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(small_device(folder));
  const auto holder = join(folder, {.name = "train", .memory = 900});
  holder->set_memory(std::make_shared<CountedMemory>());
  ASSERT_TRUE(holder->begin().ok());
  EXPECT_EQ(*holder->report_curve(kSpills), false);
  EXPECT_EQ(job_of(folder, "train")["least_bytes"], 900);
  holder->end();
  EXPECT_EQ(*holder->report_curve(kSpills), true);
  EXPECT_EQ(job_of(folder, "train")["least_bytes"], 400);
}

// It rests with the device kept, or without it; in both cases no call is made here.
TEST(DeviceLease, GetsBelowALowerLimitWhileItRests) {
  for (const bool kept : {false, true}) {
    TemporaryFolder folder;
    const Process daemon = start_daemon(small_device(folder));
    const auto holder = join(folder, {.name = "train", .memory = 900});
    const auto memory = std::make_shared<CountedMemory>();
    holder->set_memory(memory);
    ASSERT_TRUE(*holder->report_curve(kSpills));
    if (kept) {
      ASSERT_TRUE(holder->begin().ok());
      EXPECT_EQ(holder->byte_limit(), 900);
      holder->end();
    }
    const Client other = connect(folder, {.name = "other", .memory = 500});
    EXPECT_EQ(memory->asked, Depth::kSpill);
    const Json job = job_of(folder, "train");
    EXPECT_EQ(job["limit_bytes"], 400);
    EXPECT_EQ(job["used_bytes"], 100);
    EXPECT_EQ(memory->returns, 0);
    ASSERT_TRUE(holder->begin().ok());
    EXPECT_EQ(memory->returns, 1) << "before any work";
    EXPECT_EQ(holder->byte_limit(), 400);
    holder->confirm(390);
    EXPECT_TRUE(eventually([&] { return job_of(folder, "train")["used_bytes"] == 390; }));
    holder->end();
  }
}

TEST(DeviceLease, MakesRoomWhileItRestsAndInTheMiddleOfWork) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(small_device(folder));
  const auto holder = join(folder, {.name = "train", .memory = 900});
  const auto memory = std::make_shared<CountedMemory>();
  holder->set_memory(memory);
  ASSERT_TRUE(*holder->report_curve(
      {.persistent_bytes = 100, .points = {{900, 1}}, .deepest = Depth::kSpill}));
  ASSERT_TRUE(holder->begin().ok());
  holder->end();
  const JobSpec urgent{.name = "urgent",
                       .priority = 1,
                       .memory = 850,
                       .persistent_bytes = 50,
                       .deepest = Depth::kSpill};
  for (const bool resting : {true, false}) {
    const int rooms = memory->rooms;
    if (!resting) {
      ASSERT_TRUE(holder->begin().ok());
    }
    Board& board = new_board();
    Process other([&] {
      auto client = Client::connect({.socket = folder.path("s")}, urgent);
      if (!client.ok()) return 1;
      client->on_make_room([](Depth) { return Bytes{50}; });
      if (!client->acquire().ok()) return 2;
      ++board.quanta;
      return 0;
    });
    if (!resting) {
      EXPECT_TRUE(eventually([&] { return !holder->open(); }));
      ASSERT_TRUE(holder->wait().ok()) << "it makes room inside, and comes back";
      EXPECT_EQ(memory->returns, 2);
      holder->end();
    }
    EXPECT_EQ(other.wait(), 0);
    EXPECT_EQ(board.quanta, 1);
    EXPECT_GT(memory->rooms, rooms);
    ASSERT_TRUE(holder->begin().ok());
    EXPECT_EQ(memory->returns, resting ? 1 : 2);
    holder->end();
  }
}

TEST(DeviceLease, EndsWhateverItWasDoing) {
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

TEST(DeviceLease, RunsGoOneAtATimeAndOthersMayHoldBeside) {
  TemporaryFolder folder;
  const Process daemon = start_daemon(test_daemon(folder));
  const auto holder = join(folder, {.name = "train"});
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(holder->begin().ok());
        {
          DeviceLease::Run run(*holder);
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
