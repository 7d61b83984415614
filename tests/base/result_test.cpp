#include "regen/base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace regen {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return bad_input(std::to_string(number) + " is odd");
  return number / 2;
}

Status expect_small(int number) {
  if (number > 10) return limit_reached("too large");
  return {};
}

Result<int> quarter_of_small(int number) {
  REGEN_TRY(expect_small(number));
  REGEN_ASSIGN(const int once, half(number));
  REGEN_ASSIGN(const int twice, half(once));
  return twice;
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_TRUE(half(4).ok());
  EXPECT_EQ(*half(4), 2);
  EXPECT_FALSE(half(3));
  EXPECT_EQ(half(3).error(), (Error{ErrorCode::kBadInput, "3 is odd"}));
}

TEST(Result, PassesErrorsOn) {
  EXPECT_EQ(*quarter_of_small(8), 2);
  EXPECT_EQ(quarter_of_small(12).error().message, "too large");
  EXPECT_EQ(quarter_of_small(12).error().code, ErrorCode::kLimit);
  EXPECT_EQ(quarter_of_small(6).error().message, "3 is odd");
}

TEST(Result, MovesValuesOut) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  EXPECT_EQ(**result, 7);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, HoldsATypeThatIsAnErrorMessage) {
  const Result<std::string> text(std::string("fine"));
  EXPECT_TRUE(text.ok());
  EXPECT_EQ(text->size(), 4u);
}

TEST(Result, StatusIsFineUntilToldOtherwise) {
  EXPECT_TRUE(Status().ok());
  EXPECT_FALSE(Status(missing("no dot")).ok());
  EXPECT_EQ(Status(missing("no dot")).error().message, "no dot");
}

TEST(ResultDeathTest, TheAbsentSideIsABug) {
  EXPECT_DEATH((void)*half(3), "");
  EXPECT_DEATH((void)half(4).error(), "");
  EXPECT_DEATH((void)Status().error(), "");
}

TEST(Result, EachCodeIsAnExitStatus) {
  EXPECT_EQ(exit_status(ErrorCode::kInfeasible), 1);
  EXPECT_EQ(exit_status(ErrorCode::kBadInput), 2);
  EXPECT_EQ(exit_status(ErrorCode::kMissing), 2);
  EXPECT_EQ(exit_status(ErrorCode::kLimit), 3);
  EXPECT_EQ(infeasible("x").code, ErrorCode::kInfeasible);
}

}  // namespace
}  // namespace regen
