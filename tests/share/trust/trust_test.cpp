// Whose process is at the other end, which processes are ended, and what the other side may send. See docs/explanation/trust.md, "Sharing".
#include "tests/share/trust/trust_fixture.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

// --- Registration

TEST(Trust, TwoRegistersOfOneConnectionWhileTheDaemonSettles) {
  TemporaryFolder folder;
  DaemonOptions options = test_daemon(folder);
  options.settle = 300'000'000;
  options.patience = 10'000'000'000;
  const Process daemon = start_daemon(options);
  {
    Stranger twice(options.socket);
    twice.send(frame(register_text("a", R"(,"device":"moon")")) + frame(register_text("b")));
    EXPECT_THAT(twice.error(), HasSubstr("second register on one connection"));
    Stranger good(options.socket), bad(options.socket);
    bad.send(frame(register_text("c", R"(,"device":"moon")")));
    good.send(frame(register_text("d")));
    EXPECT_THAT(bad.error(), HasSubstr("unknown device 'moon'"));
    ASSERT_TRUE(
        eventually([&] { return report(options.socket)["devices"][0]["jobs"].size() == 1; }));
  }
  EXPECT_TRUE(eventually([&] {
    const Json status = report(options.socket);
    return status["connections"] == 1 && status["devices"][0]["used_bytes"] == 0 &&
           status["devices"][0]["jobs"].empty();
  }));
}

// --- Which processes are ended

TEST(Trust, AProcessThatEndedBeforeItsRegistrationIsNoJob) {
  TemporaryFolder folder;
  const DaemonOptions options = test_daemon(folder);
  const Process daemon = start_daemon(options);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  // It connects, leaves its connection to a child, and ends: its number is free for others.
  Process first([&]() -> int {
    Stranger stranger(options.socket);
    if (::fork() != 0) ::_exit(0);
    char go = 0;
    (void)!::read(ends[0], &go, 1);
    stranger.send(frame(register_text("heir")));
    (void)stranger.rest();
    ::_exit(0);
  });
  EXPECT_EQ(first.wait(), 0);
  (void)!::write(ends[1], "g", 1);
  EXPECT_TRUE(eventually([&] { return report(options.socket)["connections"] == 1; }));
  EXPECT_TRUE(report(options.socket)["devices"][0]["jobs"].empty());
  ::close(ends[0]);
  ::close(ends[1]);
}

// A job that locks what it got from the daemon, although it was never granted the device.
TEST(Trust, AJobThatWasNeverGrantedCannotMakeOthersHang) {
  TemporaryFolder folder;
  const Log log(folder);
  DaemonOptions options = test_daemon(folder);
  options.kill_hung = true;
  options.holder_patience = 100'000'000;
  options.log = log.writer();
  const Process daemon = start_daemon(options);
  Board& board = new_board();
  Process thief([&] {
    auto channel = Channel::open(options.socket);
    channel->send(asked(MessageType::kRegister, Json::parse(register_text("thief"))));
    (void)channel->receive().ok();
    const auto files = channel->take_descriptors();
    if (files.size() != 2) return 3;
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_len = 1000;
    if (::fcntl(files[1].number(), F_SETLK, &lock) != 0) return 4;
    board.quanta = 1;
    while (board.stop == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return board.quanta == 1; }));
  Process honest([&] {
    auto client = Client::connect({.socket = options.socket}, {.name = "honest"});
    auto other = Client::connect({.socket = options.socket}, {.name = "other", .priority = 1});
    if (!client.ok() || !other.ok()) return 2;
    for (int round = 0; round < 20; ++round) {
      if (!client->acquire().ok()) return 5;
      client->idle();
      if (!other->acquire().ok()) return 6;
      other->idle();
    }
    return 0;
  });
  EXPECT_EQ(honest.wait(), 0) << "it is neither stopped nor killed";
  board.stop = 1;
  EXPECT_EQ(thief.wait(), 0);
  EXPECT_EQ(log.count("has not given way"), 0u);
}

TEST(Trust, AJobThatGivesBackADeviceThatItUsesIsOut) {
  TemporaryFolder folder;
  DaemonOptions options = test_daemon(folder);
  options.kill_hung = true;
  options.holder_patience = 50'000'000;
  const Process daemon = start_daemon(options);
  Process liar([&] {
    auto channel = Channel::open(options.socket);
    channel->send(asked(MessageType::kRegister, Json::parse(register_text("liar"))));
    (void)channel->receive().ok();
    const auto files = channel->take_descriptors();
    channel->send(asked(MessageType::kAcquire));
    (void)channel->receive().ok();
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_len = 1;
    if (::fcntl(files[1].number(), F_SETLK, &lock) != 0) return 4;
    channel->send(asked(MessageType::kIdle));
    const auto answer = channel->receive();
    if (answer.ok() || answer.error().message.find("that it uses") == std::string::npos) return 5;
    ::pause();
    return 6;
  });
  auto client = Client::connect({.socket = options.socket}, {.name = "honest"});
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(liar.wait(), 128 + SIGTERM) << "that one, and no other";
  EXPECT_TRUE(client->acquire().ok()) << "the device is free once it has ended";
}

// --- Spills that fail

TEST(Trust, AJobThatCannotMakeRoomIsNotAskedWithoutEnd) {
  TemporaryFolder folder;
  const Log log(folder);
  DaemonOptions options = test_daemon(folder);
  options.devices = {{"cpu", 1000}};
  options.log = log.writer();
  const Process daemon = start_daemon(options);
  Board& board = new_board();
  const auto job = [&](const std::string& name, bool can_move, std::atomic<int>& grants,
                       std::atomic<int>& calls) {
    auto client = Client::connect(
        {.socket = options.socket},
        {.name = name, .memory = 600, .persistent_bytes = 100, .deepest = Depth::kSpill});
    if (!client.ok()) return 2;
    client->on_make_room([&](Depth) {
      ++calls;
      return Bytes{can_move ? 100 : 600};
    });
    while (board.stop == 0) {
      if (!client->keep_going() && !client->acquire().ok()) return 3;
      ++grants;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return 0;
  };
  std::atomic<int>& rooms = board.reconnections;
  Process stubborn([&] { return job("stubborn", false, board.quanta, rooms); });
  ASSERT_TRUE(eventually([&] { return board.quanta > 5; }));
  Process waiter([&] { return job("waiter", true, board.collisions, board.owner); });
  ASSERT_TRUE(eventually([&] { return log.count("could not make room") > 0; }));
  const int before = board.quanta;
  EXPECT_TRUE(eventually([&] { return board.quanta > before + 500; }))
      << "the device does not wait with the job that gets no memory";
  EXPECT_LE(rooms, 4) << "once, and again after one, two and four seconds";
  EXPECT_EQ(log.count("could not make room"), static_cast<std::size_t>(rooms));
  stubborn.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return board.collisions > 0; })) << "and then it gets it";
  board.stop = 1;
  EXPECT_EQ(waiter.wait(), 0);
}

// --- Which process listens, and what it sends

// A daemon that answers one register with a page of its own making.
Process false_daemon(const std::string& path, const std::function<Descriptor()>& page) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  Process process([&] {
    const auto address = socket_address(path).value();
    const Descriptor listener(::socket(AF_UNIX, SOCK_STREAM, 0));
    if (::bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      return 2;
    ::chmod(path.c_str(), 0666);
    ::listen(listener.number(), 5);
    (void)!::write(ends[1], "r", 1);
    while (true) {
      const Descriptor client(::accept(listener.number(), nullptr, nullptr));
      char buffer[4096];
      (void)!::read(client.number(), buffer, sizeof buffer);
      const Descriptor made = page();
      const int number = made.number();
      const std::string answer =
          encode(asked(MessageType::kRegistered, {{"job", 0}, {"go", 1}, {"device", 0}}));
      (void)send_to(client.number(), answer, std::span(&number, 1), 0);
    }
  });
  char ready = 0;
  ::close(ends[1]);
  (void)!::read(ends[0], &ready, 1);
  ::close(ends[0]);
  return process;
}

TEST(Trust, APageThatCouldShrinkIsRefused) {
  TemporaryFolder folder;
  const Process daemon = false_daemon(folder.path("s"), [] {
    Descriptor page(::memfd_create("page", MFD_ALLOW_SEALING));
    (void)!::ftruncate(page.number(), 4096);
    return page;
  });
  const auto client = Client::connect({.socket = folder.path("s")}, {.name = "a"});
  ASSERT_FALSE(client.ok());
  EXPECT_THAT(client.error().message, HasSubstr("a page whose size is not sealed"));
}

TEST(Trust, ADaemonOfAnotherUserAtTheUsualPathIsRefused) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path("").c_str(), 0777), 0);
  ASSERT_EQ(::mkdir(folder.path("regen").c_str(), 0777), 0);
  ASSERT_EQ(::chmod(folder.path("regen").c_str(), 0777), 0);
  const std::string path = folder.path("regen/share.sock");
  Process nobody([&] {
    if (::setuid(kNobody) != 0) return 2;
    const Process daemon = false_daemon(path, [] { return Descriptor(); });
    ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return Stranger(path).connected(); }));
  Process client([&] {
    ::setenv("XDG_RUNTIME_DIR", folder.path("").substr(0, folder.path("").size() - 1).c_str(), 1);
    ::unsetenv("REGEN_SHARE_SOCKET");
    const auto refused = Client::connect({.socket = default_socket()}, {.name = "a"});
    if (refused.ok() || refused.error().message.find("is of user 65534") == std::string::npos)
      return 1;
    // A caller that names the path knows whose it is.
    ::setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
    return refusal(path, asked(MessageType::kStatus), MessageType::kReport).find("of user") ==
                   std::string::npos
               ? 0
               : 2;
  });
  EXPECT_EQ(client.wait(), 0);
}

TEST(Trust, AStateFileDoesNotFollowALinkInItsPlace) {
  TemporaryFolder folder;
  std::ofstream(folder.path("treasure")) << "gold";
  ASSERT_EQ(::symlink(folder.path("treasure").c_str(), folder.path("state.new").c_str()), 0);
  auto state = StateFile::open(folder.path("state"), {.access = StateFile::Access::kWrite});
  ASSERT_TRUE(state.ok());
  const std::vector<std::byte> bytes(100);
  const std::vector<std::span<const std::byte>> parts{bytes};
  EXPECT_TRUE(state->commit(1, parts).ok());
  EXPECT_EQ(*read_file(folder.path("treasure")), "gold");
}

TEST(Trust, AProducerOutlivesMoreConnectionsThanItHasDescriptors) {
  TemporaryFolder folder;
  Process producer([&] {
    rlimit few{200, 200};
    ::setrlimit(RLIMIT_NOFILE, &few);
    auto server = FeedServer::open(folder.path("f"), {.patience = 60'000'000'000});
    if (!server.ok() || !server->start(2, 4096).ok()) return 2;
    while (server->begin()) {
      auto place = server->place("{}", 1);
      if (!place.ok()) return 3;
      server->publish();
    }
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return FeedSocket::connect(folder.path("f")).ok(); }));
  {
    std::vector<FeedSocket> crowd;
    for (int i = 0; i < 400; ++i) {
      auto one = FeedSocket::connect(folder.path("f"));
      if (one.ok()) crowd.push_back(std::move(*one));
    }
    EXPECT_EQ(crowd.size(), 400u);
    // Strangers that say nothing make room for a consumer that does; the producer ends when that one has left.
    FeedSocket consumer;
    EXPECT_TRUE(eventually([&] {
      auto next = FeedSocket::connect(folder.path("f"));
      if (!next.ok() || !next->send({.kind = FrameKind::kHello, .text = "{}"})) return false;
      consumer = std::move(*next);
      FeedFrame frame;
      for (int look = 0; look < 1000; ++look) {
        const auto arrival = consumer.receive(frame, false);
        if (!arrival.ok() || *arrival == Arrival::kGone) return false;
        if (*arrival == Arrival::kFrame) return frame.kind == FrameKind::kWelcome;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return false;
    }));
    int status = 0;
    EXPECT_EQ(::waitpid(producer.id(), &status, WNOHANG), 0) << "it still serves";
  }
  EXPECT_EQ(producer.wait(), 0);
}

}  // namespace
}  // namespace regen::share
