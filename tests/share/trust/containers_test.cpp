// Jobs in process namespaces that the daemon does not see into.
#include "tests/share/trust/trust_fixture.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

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
