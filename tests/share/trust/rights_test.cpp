// What users other than the daemon may do, by its policy and on an opened socket.
#include "tests/share/trust/trust_fixture.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace regen::share
