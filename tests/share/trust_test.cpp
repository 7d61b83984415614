// What one client can do to another, to the daemon and to its user's files: docs/explanation/trust.md, "Sharing".
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "regen/base/file.h"
#include "regen/share/client/channel.h"
#include "regen/share/daemon/rights.h"
#include "regen/share/input/feed_server.h"
#include "regen/share/input/feed_wire.h"
#include "regen/share/protocol/file_lock.h"
#include "regen/share/protocol/state_file.h"
#include "regen/share/protocol/unix_socket.h"
#include "tests/share/processes.h"
#include "tests/share/stranger.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kNobody = 65534;
constexpr int kSkipped = 77;

std::string register_text(const std::string& name, const std::string& more = "") {
  return R"({"name":")" + name + R"(","identity":")" + name + R"(","memory":5)" + more + "}";
}

// What the daemon logs, for processes that read it meanwhile.
struct Log {
  explicit Log(const TemporaryFolder& folder) : path(folder.path("log")) {}
  std::function<void(const std::string&)> writer() const {
    return [path = path](const std::string& line) {
      std::ofstream(path, std::ios::app) << line << "\n";
    };
  }
  std::string text() const {
    const auto content = read_file(path);
    return content.ok() ? *content : "";
  }
  std::size_t count(const std::string& part) const {
    std::size_t found = 0;
    const std::string all = text();
    for (std::size_t at = all.find(part); at != std::string::npos; at = all.find(part, at + 1))
      ++found;
    return found;
  }
  std::string path;
};

// Runs as another user; kSkipped where that is not possible.
int as_user(uid_t user, const std::function<int()>& body) {
  Process other([&] {
    if (::setgid(user) != 0 || ::setuid(user) != 0) return kSkipped;
    return body();
  });
  return other.wait();
}

Message asked(MessageType type, Json body = Json::object()) {
  return {type, std::move(body)};
}

// The text of the error that answers a message; empty when it is answered as it should be.
std::string refusal(const std::string& socket, const Message& question, MessageType answer) {
  const auto found = ask(socket, question, answer);
  return found.ok() ? "" : found.error().message;
}

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

// --- Who is ended

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

// --- Who listens, and what it sends

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
    // Who names the path knows whose it is.
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

// --- Floods

#if defined(__has_feature)
constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool kThreadSanitizer = false;
#endif

long resident_pages(pid_t process) {
  std::ifstream sizes("/proc/" + std::to_string(process) + "/statm");
  long total = 0, resident = 0;
  sizes >> total >> resident;
  return resident;
}

TEST(Trust, QuestionsDoNotStopTheTurns) {
  TemporaryFolder folder;
  DaemonOptions options = test_daemon(folder);
  options.patience = 60'000'000'000;
  const Process daemon = start_daemon(options);
  std::vector<Client> crowd;
  for (int i = 0; i < 50; ++i) {
    auto client = Client::connect({.socket = options.socket}, {.name = "job " + std::to_string(i)});
    ASSERT_TRUE(client.ok());
    crowd.push_back(std::move(*client));
  }
  const std::string question = frame("{}", MessageType::kStatus);
  std::string questions;
  while (questions.size() < (82u << 10)) questions += question;
  std::vector<std::unique_ptr<Stranger>> deaf;
  for (int i = 0; i < 20; ++i) {
    deaf.push_back(std::make_unique<Stranger>(options.socket));
    deaf.back()->send(questions);
  }
  // One that reads its answers, and counts them.
  Board& board = new_board();
  Process curious([&] {
    auto channel = Channel::open(options.socket);
    if (!channel.ok()) return 2;
    std::thread asker([&] {
      for (std::size_t at = 0; at < questions.size(); at += question.size()) {
        channel->send(asked(MessageType::kStatus));
      }
    });
    for (; board.stop == 0; ++board.quanta) {
      const auto answer = channel->receive();
      if (!answer.ok() || !*answer) return 3;
    }
    ::_exit(0);
  });
  ASSERT_TRUE(eventually([&] { return board.quanta > 0; }));
  const int before = board.quanta;
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(crowd[0].acquire().ok());
    crowd[0].idle();
  }
  EXPECT_LT(board.quanta - before, 1000) << "turns go before reports";
  board.stop = 1;
  if (!kThreadSanitizer) {  // which keeps several bytes for each
    EXPECT_LT(resident_pages(daemon.id()) * ::sysconf(_SC_PAGE_SIZE), 100 << 20);
  }
}

TEST(Trust, OneProcessCannotKeepAllConnections) {
  TemporaryFolder folder;
  DaemonOptions options = test_daemon(folder);
  options.max_connections = 30;
  options.patience = 60'000'000'000;
  const Process daemon = start_daemon(options);
  Board& board = new_board();
  Process greedy([&] {
    std::vector<std::unique_ptr<Stranger>> crowd;
    for (int i = 0; i < 30; ++i) {
      crowd.push_back(std::make_unique<Stranger>(options.socket));
      crowd.back()->send(frame("{}", MessageType::kStatus));
    }
    board.quanta = 1;
    ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return board.quanta == 1; }));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Client::connect({.socket = options.socket}, {.name = "honest"}).ok());
  }
}

TEST(Trust, RefusedConnectionsAreForgotten) {
  TemporaryFolder folder;
  DaemonOptions options = test_daemon(folder);
  options.max_connections = 2;
  options.patience = 60'000'000'000;
  const Process daemon = start_daemon(options);
  {
    Stranger first(options.socket), second(options.socket);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(Stranger(options.socket).error(), "the daemon has 2 connections, expected no more");
    }
  }
  EXPECT_TRUE(eventually([&] {
    const Json status = report(options.socket);
    return status.is_object() && status["connections"] == 1;
  }));
}

// --- Rights

Result<Rights> rights(const std::string& text) {
  return Rights::parse(text, "policy");
}

Peer peer(std::int64_t user, std::vector<std::int64_t> groups = {}) {
  return {.process = 1, .user = user, .groups = std::move(groups)};
}

TEST(Rights, LimitsOfUsersGroupsAndOthers) {
  const auto read = rights(R"({"administrators": ["7"], "default": {"jobs": 2},
    "users": {"8": {"priority": 3, "memory": "1KiB", "weight": 2.5, "deadlines": true}},
    "groups": {"20": {"priority": 1}, "21": {"memory": 10, "weight": 9}}})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(read->is_administrator(peer(7)));
  EXPECT_FALSE(read->is_administrator(peer(0))) << "containers run as root";
  EXPECT_FALSE(read->is_administrator(peer(kUnknownUser)));
  EXPECT_EQ(read->limits_of(peer(8, {20})), (UserLimits{3, 2.5, 1024, 2, true}));
  EXPECT_EQ(read->limits_of(peer(9, {20, 21})), (UserLimits{1, 9, kMaxBytes, 2, false}));
  EXPECT_EQ(read->limits_of(peer(9)), (UserLimits{.jobs = 2}));
  const JobSpec big{.name = "a", .priority = 3, .memory = 1000};
  EXPECT_TRUE(read->allows(peer(8), big, {}).ok());
  EXPECT_THAT(read->allows(peer(8), big, {.memory = 25, .jobs = 1}).error().message,
              HasSubstr("job 'a' of user 8 has 1,000 bytes beside 25 of its user's other jobs, "
                        "expected at most 1,024 together"));
  EXPECT_THAT(read->allows(peer(8), {.name = "a"}, {.jobs = 2}).error().message,
              HasSubstr("2 jobs of its user beside it, expected at most 2 in all"));
  EXPECT_THAT(read->allows(peer(9), {.name = "a", .priority = 1}, {}).error().message,
              HasSubstr("has priority 1, expected at most 0"));
  EXPECT_THAT(read->allows(peer(9), {.name = "a", .deadline = 5}, {}).error().message,
              HasSubstr("has a deadline, expected at most none"));
  EXPECT_TRUE(read->allows(peer(7), {.name = "a", .priority = 9, .memory = kMaxBytes}, {}).ok());
}

TEST(Rights, BadPolicyFiles) {
  EXPECT_THAT(rights("[]").error().message, HasSubstr("policy"));
  EXPECT_THAT(rights(R"({"user": {}})").error().message, HasSubstr("user"));
  EXPECT_THAT(
      rights(R"({"users": {"no such user": {}}})").error().message,
      HasSubstr("unknown user 'no such user', expected a name of this machine or a number"));
  EXPECT_THAT(rights(R"({"default": {"priority": -1}})").error().message, HasSubstr("priority"));
  EXPECT_THAT(rights(R"({"default": {"memory": "lots"}})").error().message, HasSubstr("lots"));
  EXPECT_THAT(rights(R"({"users": {"1": 5}})").error().message, HasSubstr("users"));
  EXPECT_THAT(Rights::read("/nowhere/policy").error().message, HasSubstr("/nowhere/policy"));
}

class OpenedSocket : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "only root can become somebody else";
    ASSERT_EQ(::chmod(folder_.path("").c_str(), 0755), 0);
    options_ = test_daemon(folder_);
    options_.mode = 0666;
    options_.devices = {{"cpu", 1000}};
  }
  // What another user's message is answered with.
  std::string answer_to_nobody(const Message& message, MessageType answer) {
    std::string text(2000, '\0');
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(as_user(kNobody,
                      [&] {
                        const std::string found = refusal(options_.socket, message, answer);
                        (void)!::write(ends[1], found.data(), found.size());
                        return 0;
                      }),
              0);
    ::close(ends[1]);
    const ssize_t count = ::read(ends[0], text.data(), text.size());
    ::close(ends[0]);
    return text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(0, count)));
  }
  static Message registration(const Json& more) {
    Json body{{"name", "stranger"}, {"identity", "stranger"}, {"memory", 100}};
    body.update(more);
    return asked(MessageType::kRegister, std::move(body));
  }

  TemporaryFolder folder_;
  DaemonOptions options_;
};

TEST_F(OpenedSocket, NobodyChangesTheJobsOfOthers) {
  const Process daemon = start_daemon(options_);
  auto client = Client::connect({.socket = options_.socket}, {.name = "mine", .memory = 600});
  ASSERT_TRUE(client.ok());
  const auto change = [](Json what) {
    what["job"] = "mine";
    return asked(MessageType::kChange, std::move(what));
  };
  EXPECT_THAT(answer_to_nobody(change({{"weight", 5}}), MessageType::kChanged),
              HasSubstr("job 'mine' belongs to user 0, found user 65534, expected its owner or an "
                        "administrator"));
  EXPECT_THAT(answer_to_nobody(change({{"memory", 1}}), MessageType::kChanged),
              HasSubstr("belongs to user 0"));
  EXPECT_EQ(refusal(options_.socket, change({{"weight", 5}}), MessageType::kChanged), "")
      << "an administrator may";
  EXPECT_EQ(report(options_.socket)["devices"][0]["jobs"][0]["weight"], 5);
}

TEST_F(OpenedSocket, EachUserHasLimits) {
  options_.rights = *rights(
      R"({"administrators": ["0"], "default": {"memory": 300},
          "users": {"65533": {"priority": 2, "jobs": 1}}})");
  const Process daemon = start_daemon(options_);
  EXPECT_THAT(answer_to_nobody(registration({{"priority", 1}}), MessageType::kRegistered),
              HasSubstr("has priority 1, expected at most 0"));
  EXPECT_THAT(answer_to_nobody(registration({{"weight", 2}}), MessageType::kRegistered),
              HasSubstr("has weight 2, expected at most 1"));
  EXPECT_THAT(answer_to_nobody(registration({{"memory", 301}}), MessageType::kRegistered),
              HasSubstr("expected at most 300 together"));
  EXPECT_THAT(answer_to_nobody(registration({{"deadline_seconds", 1}}), MessageType::kRegistered),
              HasSubstr("has a deadline"));
  EXPECT_EQ(answer_to_nobody(registration(Json::object()), MessageType::kRegistered), "");
  const int other = as_user(65533, [&] {
    auto client =
        Client::connect({.socket = options_.socket}, {.name = "own", .priority = 2, .memory = 200});
    if (!client.ok()) return 1;
    const auto change = [&](Json what) {
      what["job"] = "own";
      return refusal(options_.socket, asked(MessageType::kChange, std::move(what)),
                     MessageType::kChanged);
    };
    if (!change({{"priority", 1}}).empty() || !change({{"memory", 300}}).empty()) return 2;
    if (change({{"priority", 3}}).find("has priority 3, expected at most 2") == std::string::npos)
      return 3;
    if (change({{"memory", 301}}).find("at most 300") == std::string::npos) return 4;
    const auto second = Client::connect({.socket = options_.socket}, {.name = "second"});
    return !second.ok() && second.error().message.find("1 in all") != std::string::npos ? 0 : 5;
  });
  EXPECT_EQ(other, 0);
}

TEST_F(OpenedSocket, NobodyTakesTheIdentityOfAnAbsentJobOrSkipsAdmission) {
  std::vector<Process> daemon;
  daemon.push_back(start_daemon(options_));
  Board& board = new_board();
  Process owner([&] {
    auto client =
        Client::connect({.socket = options_.socket},
                        {.name = "owner", .identity = "secret", .priority = 1, .memory = 600});
    if (!client.ok()) return 2;
    board.quanta = 1;
    while (board.stop == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return client->acquire().ok() ? 0 : 3;
  });
  ASSERT_TRUE(eventually([&] { return board.quanta == 1; }));
  daemon.back().signal(SIGKILL);
  daemon.back().wait();
  daemon.clear();
  daemon.push_back(start_daemon(options_));
  const Json again{{"again", true}, {"full_bytes", 600}, {"held_bytes", 600}, {"memory", 600}};
  Json taken = again;
  taken["identity"] = "secret";
  EXPECT_THAT(answer_to_nobody(registration(taken), MessageType::kRegistered),
              HasSubstr("'secret' belongs to user 0"));
  EXPECT_THAT(answer_to_nobody(registration(again), MessageType::kRegistered),
              HasSubstr("asks for 600 bytes on device 'cpu', expected at most 400"));
  board.stop = 1;
  EXPECT_EQ(owner.wait(), 0) << "the owner comes back";
}

// --- Containers

// Runs in a process namespace of its own, as in a container; kSkipped where that is not possible.
int in_container(const std::function<int()>& body) {
  Process outer([&] {
    if (::unshare(CLONE_NEWPID) != 0) return kSkipped;
    Process inner(body);
    return inner.wait();
  });
  return outer.wait();
}

TEST(Containers, NamesOfTemporaryFilesDiffer) {
  TemporaryFolder folder;
  for (const char* name : {"a", "b"}) {
    const int status = in_container([&] {
      std::ofstream(folder.path(name)) << temporary_beside("/x/y.json");
      return ::getpid() == 1 ? 0 : 1;
    });
    if (status == kSkipped) GTEST_SKIP() << "only root can make a process namespace";
    ASSERT_EQ(status, 0);
  }
  EXPECT_NE(*read_file(folder.path("a")), *read_file(folder.path("b")));
}

TEST(Containers, ANewDaemonKeepsTheBytesOfJobsThatItCannotSee) {
  TemporaryFolder folder;
  DaemonOptions options = test_daemon(folder);
  options.devices = {{"cpu", 1000}};
  Board& board = new_board();
  // Each in a container beside the other: the kernel reports process 0.
  const auto contained = [&](const std::function<int()>& body) {
    return Process([&] { return in_container(body); });
  };
  const auto daemon = [&] {
    return contained([&] {
      const Status served = serve(options, [&] { ++board.reconnections; });
      return served.ok() ? 0 : 2;
    });
  };
  Process first = daemon();
  const auto serves = [&](int times) {
    return eventually([&] { return board.reconnections == times; });
  };
  if (::getuid() != 0) GTEST_SKIP() << "only root can make a process namespace";
  ASSERT_TRUE(serves(1));
  Process job = contained([&] {
    auto client = Client::connect({.socket = options.socket}, {.name = "job", .memory = 600});
    if (!client.ok()) return 2;
    board.quanta = 1;
    ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return board.quanta == 1; }));
  EXPECT_EQ(report(options.socket)["devices"][0]["jobs"][0]["process"], 0);
  first.signal(SIGKILL);
  first.wait();
  // What it was ends with it, one process after the other.
  ASSERT_TRUE(eventually([&] { return !Stranger(options.socket).connected(); }));
  ASSERT_TRUE(eventually([&] { return FileLock::take(options.socket + ".lock").ok(); }));
  Process second = daemon();
  ASSERT_TRUE(serves(2));
  EXPECT_THAT(
      refusal(options.socket,
              asked(MessageType::kCheck, {{"name", "new"}, {"identity", "new"}, {"memory", 600}}),
              MessageType::kFits),
      HasSubstr("expected at most 400"));
  job.signal(SIGKILL);
  job.wait();
  EXPECT_TRUE(eventually([&] { return report(options.socket)["devices"][0]["used_bytes"] == 0; }))
      << "until the job ends";
}

}  // namespace
}  // namespace regen::share
