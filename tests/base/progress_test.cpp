#include "regen/base/progress/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "regen/base/parallel.h"
#include "regen/base/progress/progress_board.h"
#include "regen/base/progress/progress_line.h"
#include "regen/base/progress/progress_text.h"

namespace regen {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

// --- in words

ProgressState search() {
  return {.stage = "plan", .best = 0.0125, .bound = 0.012, .base = 0.01, .seconds = 3.21};
}

TEST(ProgressText, SaysWhatIsKnown) {
  EXPECT_EQ(progress_text({.stage = "plan", .seconds = 0.5}, 200), "planning, 0.5 s, no plan yet");
  EXPECT_EQ(progress_text(search(), 200),
            "planning, 3.2 s, best 12.5 ms, +25.0 % over keeping everything, at least 12.0 ms, "
            "gap 4.00 %");
  EXPECT_EQ(progress_text({.stage = "measure", .pieces = "ops", .total = 800, .done = 312}, 60),
            "measuring 312/800 ops, 0.0 s, [=========>              ]");
  EXPECT_EQ(progress_text({.stage = "capture", .pieces = "ops", .done = 7, .seconds = 12}, 60),
            "capturing 7 ops, 12 s");
  EXPECT_EQ(progress_text({.stage = "sweep", .pieces = "points", .total = 4}, 30),
            "sweep 0/4 points, 0.0 s");
  EXPECT_EQ(progress_text({.stage = "sweep", .pieces = "points", .total = 4}, 15), "sweep 0/4");
  EXPECT_EQ(
      progress_text(
          {.stage = "wait", .subject = "for admission", .note = "place 2 of 3", .seconds = 4000},
          200),
      "waiting for admission, 67 min, place 2 of 3");
  EXPECT_EQ(progress_text({.stage = "plan", .subject = "for the least budget"}, 200),
            "planning for the least budget, 0.0 s");
}

TEST(ProgressText, SaysHowItEnded) {
  ProgressState state = search();
  state.ended = true;
  EXPECT_THAT(progress_text(state, 200), ::testing::StartsWith("planned, 3.2 s, best 12.5 ms"));
  state.best.reset();
  EXPECT_EQ(progress_text(state, 200), "planning ended, 3.2 s, no plan yet, at least 12.0 ms");
  EXPECT_EQ(progress_text({.stage = "measure", .total = 3, .done = 3, .ended = true}, 80),
            "measured 3/3, 0.0 s");
  EXPECT_EQ(progress_text({.stage = "measure", .total = 3, .done = 2, .ended = true}, 80),
            "measuring 2/3 ended, 0.0 s");
}

// Every width: whole parts, the most important first, and never more columns than there are.
TEST(ProgressText, LeavesOutWhatDoesNotFit) {
  const std::string whole = progress_text(search(), 1000);
  for (std::size_t width = 0; width <= whole.size() + 1; ++width) {
    const std::string text = progress_text(search(), width);
    EXPECT_LE(text.size(), width);
    EXPECT_EQ(text, whole.substr(0, text.size()));
    const bool cut = text.size() < std::string("planning").size();
    EXPECT_TRUE(cut || text == whole || whole.compare(text.size(), 2, ", ") == 0) << text;
  }
  EXPECT_EQ(progress_text(search(), 40), "planning, 3.2 s, best 12.5 ms");
}

TEST(ProgressText, IsOneColumnForEachByte) {
  const std::string text = progress_text({.stage = "plan", .note = "a\nb\x1b[2J\xc3\xa9"}, 200);
  EXPECT_EQ(text, "planning, 0.0 s, a?b?[2J??, no plan yet");
}

TEST(ProgressState, ComparesTheBestPlan) {
  EXPECT_DOUBLE_EQ(*search().overhead(), 0.25);
  EXPECT_NEAR(*search().gap(), 0.04, 1e-12);
  EXPECT_FALSE(ProgressState{.stage = "plan"}.overhead());
  EXPECT_FALSE(ProgressState{.stage = "plan"}.gap());
  ProgressState proven = search();
  proven.bound = 0.0126;  // by rounding
  EXPECT_EQ(*proven.gap(), 0);
}

// --- events

class ProgressEvents : public ::testing::Test {
 protected:
  void SetUp() override { board_.read_events(true); }
  void TearDown() override { board_.read_events(false); }
  std::vector<ProgressState> taken() { return board_.take_events(); }

  ProgressBoard& board_ = ProgressBoard::of_process();
};

MATCHER_P3(Is, stage, done, ended, "") {
  return arg.stage == stage && arg.done == static_cast<std::size_t>(done) && arg.ended == ended;
}

TEST_F(ProgressEvents, BeginChangeAndEnd) {
  EXPECT_THAT(taken(), IsEmpty());
  {
    Progress progress({.stage = "measure", .total = 3});
    EXPECT_TRUE(progress.watched());
    EXPECT_THAT(taken(), ElementsAre(Is("measure", 0, false)));
    EXPECT_THAT(taken(), IsEmpty()) << "nothing is new";
    progress.advance();
    progress.advance();
    EXPECT_THAT(taken(), ElementsAre(Is("measure", 2, false)));
    progress.advance(5);
    EXPECT_THAT(taken(), ElementsAre(Is("measure", 3, false))) << "not more than there are";
  }
  EXPECT_THAT(taken(), ElementsAre(Is("measure", 3, true)));
}

TEST_F(ProgressEvents, OfWorkThatIsOverAreOne) {
  { const Progress progress({.stage = "place"}); }
  { const Progress progress({.stage = "compile"}); }
  const auto events = taken();
  EXPECT_THAT(events, ElementsAre(Is("place", 0, true), Is("compile", 0, true)));
  EXPECT_LT(events[0].number, events[1].number);
}

TEST_F(ProgressEvents, TheBestOfAllCountsUntilItIsSettled) {
  Progress progress({.stage = "plan", .base = 1});
  progress.improve(3.0, 0.5);
  progress.improve(std::nullopt, 0.25);
  progress.improve(4.0, 1.0);
  EXPECT_THAT(taken(), ElementsAre(AllOf(Field(&ProgressState::best, std::optional(3.0)),
                                         Field(&ProgressState::bound, 1.0))));
  progress.settle(3.5, 4.0);
  EXPECT_THAT(taken(), ElementsAre(AllOf(Field(&ProgressState::best, std::optional(3.5)),
                                         Field(&ProgressState::bound, 3.5))));
}

TEST_F(ProgressEvents, FromManyThreads) {
  Progress progress({.stage = "sweep", .total = 1000});
  parallel_for(1000, 4, [&](std::size_t) { progress.advance(); });
  EXPECT_EQ(taken().back().done, 1000U);
}

TEST_F(ProgressEvents, TheReaderSleepsUntilThereIsNews) {
  Progress progress({.stage = "sweep", .total = 2});
  (void)taken();
  std::thread worker([&] { progress.advance(); });
  while (true) {
    board_.wait_for_events(3600);
    const auto events = taken();
    if (!events.empty() && events[0].done == 1) break;
  }
  worker.join();
  std::thread waker([&] { board_.wake_reader(); });
  board_.wait_for_events(3600);
  waker.join();
}

// Time passes, and a reader shows that.
TEST_F(ProgressEvents, WorkThatLastsIsNews) {
  const Progress progress({.stage = "wait"});
  const double began = taken()[0].seconds;
  board_.wait_for_events(3600);
  const auto events = taken();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_GT(events[0].seconds, began);
}

TEST_F(ProgressEvents, AReaderThatDoesNotReadCostsLittle) {
  for (int i = 0; i < 5000; ++i) const Progress progress({.stage = "place"});
  EXPECT_LE(taken().size(), 1000U);
}

TEST_F(ProgressEvents, AChildIsNotItsParent) {
  const Progress parents({.stage = "plan"});
  const pid_t child = ::fork();
  if (child == 0) {
    ProgressBoard& board = ProgressBoard::of_process();
    board.read_events(true);
    { const Progress own({.stage = "compile"}); }
    const auto events = board.take_events();
    ::_exit(events.size() == 1 && events[0].stage == "compile" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(taken(), ElementsAre(Is("plan", 0, false)));
}

TEST(Progress, WithoutWatchersNothingIsKept) {
  allow_progress_line(false);
  ProgressBoard& board = ProgressBoard::of_process();
  {
    Progress progress({.stage = "plan"});
    EXPECT_FALSE(progress.watched());
    progress.improve(1.0, 0);
    progress.advance();
    progress.say("nothing");
  }
  board.read_events(true);
  EXPECT_THAT(board.take_events(), IsEmpty());
  board.read_events(false);
  allow_progress_line(true);
}

}  // namespace
}  // namespace regen
