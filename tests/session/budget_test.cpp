// Budgets in all the ways in which people write them.
#include "regen/session/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/session/runtime_reserve.h"

namespace regen::session {
namespace {

using ::testing::HasSubstr;

constexpr Bytes kUnplanned = 1'000'000;

Bytes bytes_of(const Budget& budget, const execute::CpuDeviceOptions& options = {}) {
  const auto device = execute::make_cpu_device(options);
  const auto bytes = budget.bytes(kUnplanned, *device);
  EXPECT_TRUE(bytes.ok()) << bytes.error().message;
  return *bytes;
}

TEST(Budget, IsWrittenInBytes) {
  EXPECT_EQ(bytes_of(*Budget::parse("6GiB")), Bytes{6} << 30);
  EXPECT_EQ(bytes_of(*Budget::parse("16e9")), 16'000'000'000);
  EXPECT_EQ(bytes_of(*Budget::parse(" 500MB ")), 500'000'000);
  EXPECT_EQ(bytes_of(*Budget::parse("1")), 1);
  EXPECT_EQ(bytes_of(Budget::from_bytes(kMaxBytes)), kMaxBytes);
}

TEST(Budget, IsWrittenAsAFractionOfTheUnplannedPeak) {
  EXPECT_EQ(bytes_of(*Budget::from_fraction(0.5)), 500'000);
  EXPECT_EQ(bytes_of(*Budget::from_fraction(1)), kUnplanned);
  EXPECT_EQ(bytes_of(*Budget::from_fraction(1.0 / 3)), 333'333);
}

TEST(Budget, IsWrittenInPercent) {
  EXPECT_EQ(bytes_of(*Budget::parse("50%")), 500'000);
  EXPECT_EQ(bytes_of(*Budget::parse("12.5%")), 125'000);
  EXPECT_EQ(bytes_of(*Budget::parse("150%")), 1'500'000);
  EXPECT_EQ(bytes_of(*Budget::parse("0%")), 0);
}

TEST(Budget, IsWhatIsFreeOnTheDevice) {
  for (const char* text : {"device", "auto", " Device ", "AUTO"}) {
    const auto budget = Budget::parse(text);
    ASSERT_TRUE(budget.ok()) << text;
    EXPECT_TRUE(budget->is_device());
    EXPECT_GT(bytes_of(*budget), 0);
  }
  EXPECT_EQ(bytes_of(Budget::of_device(), {.arena_bytes = 10'000}),
            bytes_of(*Budget::parse("auto"), {.arena_bytes = 10'000}));
}

TEST(Budget, IsRefusedWithWhatWasExpected) {
  for (const char* text : {"x%", "-1%", "1001%", "%"}) {
    const auto budget = Budget::parse(text);
    ASSERT_FALSE(budget.ok()) << text;
    EXPECT_THAT(budget.error().message, HasSubstr("expected such as 50%"));
    EXPECT_THAT(budget.error().message, HasSubstr(text));
  }
  for (const char* text : {"8GX", "", "much", "-5"}) {
    EXPECT_FALSE(Budget::parse(text).ok()) << text;
  }
  for (const double number : {0.0, -1.0, std::nan(""), 1.5}) {
    const auto budget = Budget::from_fraction(number);
    ASSERT_FALSE(budget.ok()) << number;
    EXPECT_THAT(budget.error().message, HasSubstr("expected a fraction above 0 and at most 1"));
  }
}

Result<std::optional<Bytes>> allowed(const std::optional<Budget>& budget,
                                     const std::optional<JobBytes>& job) {
  const auto device = execute::make_cpu_device();
  return allowed_bytes(budget, job, kUnplanned, *device);
}

TEST(AllowedBytes, AreThoseOfTheBudgetWithinTheJob) {
  const JobBytes job{"train", 700'000, 600'000};
  EXPECT_EQ(*allowed(std::nullopt, std::nullopt), std::nullopt);
  EXPECT_EQ(*allowed(Budget::from_bytes(5), std::nullopt), 5);
  EXPECT_EQ(*allowed(std::nullopt, job), 600'000);
  EXPECT_EQ(*allowed(*Budget::parse("50%"), job), 500'000);
  EXPECT_EQ(*allowed(*Budget::parse("65%"), job), 600'000);
  EXPECT_EQ(*allowed(Budget::of_device(), job), 600'000);
}

TEST(AllowedBytes, AreNotMoreThanTheJobWasAdmittedWith) {
  const auto refused = allowed(*Budget::parse("80%"), JobBytes{"train", 700'000, 600'000});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInfeasible);
  EXPECT_EQ(refused.error().message,
            "budget='80%' is 800,000 bytes, more than the 700,000 that job 'train' was admitted "
            "with (--memory); expected at most those");
}

TEST(RuntimeReserve, LibrariesAreRememberedAtTheirMost) {
  const auto device = execute::make_cpu_device();
  const Bytes before = note_library_bytes(*device, 0);
  EXPECT_EQ(note_library_bytes(*device, before + 100), before + 100);
  EXPECT_EQ(note_library_bytes(*device, 7), before + 100);
  EXPECT_EQ(runtime_reserve(*device).allocations, 16 << 10);
  EXPECT_EQ(runtime_reserve(*device).page, 0);
}

TEST(RuntimeReserve, KernelsAreBelievedUpToTheirReserveAndWhileNobodyElseIsThere) {
  const RuntimeReserve reserve{.kernels = 100, .alone = 1'000};
  EXPECT_EQ(loaded_kernel_bytes(reserve, 500, 540), 40);
  EXPECT_EQ(loaded_kernel_bytes(reserve, 500, 700), 100);
  EXPECT_EQ(loaded_kernel_bytes(reserve, 500, 480), 0);
  EXPECT_EQ(loaded_kernel_bytes(reserve, 990, 1'010), 0);  // of another process, perhaps
  EXPECT_EQ(loaded_kernel_bytes(runtime_reserve(c10::Device("cpu")), 0, 40), 0);
}

}  // namespace
}  // namespace regen::session
