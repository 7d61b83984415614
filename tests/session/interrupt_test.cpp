// Ctrl-C while a caller waits for a session: an error, and nothing is kept of what was cut short.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "regen/base/progress/progress_board.h"
#include "session_fixture.h"

namespace regen::session {
namespace {

using ::testing::HasSubstr;

std::size_t plan_files(const std::string& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.path().filename().string().starts_with("plan-") ? 1 : 0;
  }
  return count;
}

class Interrupts : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Session>> open(const std::string& budget) {
    Settings settings = test_settings(budget);
    settings.cache_folder = folder_;
    return Session::open(captured_chain({.update = true}), settings, {.interrupt = &pressed_});
  }

  const std::string folder_ = fresh_folder("interrupts");
  std::atomic<bool> pressed_{false};
};

TEST_F(Interrupts, EndMeasuring) {
  pressed_ = true;
  const auto opened = open("80%");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kLimit);
  EXPECT_THAT(opened.error().message, HasSubstr("interrupted while op 0 of "));
  pressed_ = false;
  EXPECT_TRUE(open("80%").ok());
}

TEST_F(Interrupts, EndPlanningWithoutAPlan) {
  auto session = open("80%");
  ASSERT_TRUE(session.ok());
  pressed_ = true;
  const Status interrupted = (*session)->plan();
  ASSERT_FALSE(interrupted.ok());
  EXPECT_EQ(interrupted.error().code, ErrorCode::kLimit);
  EXPECT_THAT(interrupted.error().message, HasSubstr("interrupted"));
  EXPECT_FALSE((*session)->has_plan());
  EXPECT_EQ(plan_files(folder_), 0U);
  pressed_ = false;
  EXPECT_TRUE((*session)->plan().ok());
  EXPECT_EQ(plan_files(folder_), 1U);
}

// The least budget is searched for once in a process: a search that was cut short says nothing of it.
TEST_F(Interrupts, OfTheSearchForTheLeastBudgetAreForgotten) {
  auto session = open("4KiB");
  ASSERT_TRUE(session.ok());
  pressed_ = true;
  EXPECT_THAT((*session)->least_budget().error().message, HasSubstr("interrupted"));
  pressed_ = false;
  const auto least = (*session)->least_budget();
  ASSERT_TRUE(least.ok());
  EXPECT_TRUE(least->has_value());
  const Status refused = (*session)->plan();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("the least budget found to work is"));
}

TEST_F(Interrupts, ASessionSaysWhatItDoes) {
  ProgressBoard& board = ProgressBoard::of_process();
  board.read_events(true);
  auto session = open("80%");
  ASSERT_TRUE(session.ok() && (*session)->plan().ok() && (*session)->compile().ok());
  std::vector<std::string> ended;
  for (const ProgressState& state : board.take_events()) {
    if (!state.ended) continue;
    ended.push_back(state.stage);
    if (state.stage == "measure") {
      EXPECT_EQ(state.done, state.total);
      EXPECT_EQ(state.total, (*session)->recorded().program().nodes.size());
    }
    if (state.stage != "plan") continue;
    EXPECT_EQ(state.best, (*session)->planned().report().cost);
    EXPECT_EQ(state.base, (*session)->recorded().base_seconds());
    EXPECT_LE(state.bound, *state.best);
  }
  board.read_events(false);
  EXPECT_THAT(ended, ::testing::ElementsAre("measure", "plan", "compile"));
}

}  // namespace
}  // namespace regen::session
