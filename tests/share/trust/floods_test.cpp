// Neighbours that ask too much, or keep too many connections.
#include "tests/share/trust/trust_fixture.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

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

TEST(Floods, QuestionsDoNotStopTheTurns) {
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

TEST(Floods, OneProcessCannotKeepAllConnections) {
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

TEST(Floods, RefusedConnectionsAreForgotten) {
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

}  // namespace
}  // namespace regen::share
