#include "regen/base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "regen/base/random.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

struct Form {
  const char* text;
  Bytes bytes;
};

TEST(Units, ReadsEveryFormOfBytes) {
  constexpr Bytes kGib = Bytes{1} << 30;
  for (const Form& form : {Form{"0", 0},
                           Form{"1048576", 1048576},
                           Form{"007", 7},
                           Form{"16e9", 16'000'000'000},
                           Form{"1E3", 1000},
                           Form{"8GiB", 8 * kGib},
                           Form{"8gib", 8 * kGib},
                           Form{"8 GiB", 8 * kGib},
                           Form{"8   GiB", 8 * kGib},
                           Form{"8Gi", 8 * kGib},
                           Form{"8G", 8'000'000'000},
                           Form{"8GB", 8'000'000'000},
                           Form{"500MB", 500'000'000},
                           Form{"500m", 500'000'000},
                           Form{"1KB", 1000},
                           Form{"1kib", 1024},
                           Form{"2TB", 2'000'000'000'000},
                           Form{"2TiB", 2048 * kGib},
                           Form{"1PB", 1'000'000'000'000'000},
                           Form{"7b", 7},
                           Form{"1.5KiB", 1536},
                           Form{".5KiB", 512},
                           Form{"0.1KB", 100},
                           Form{"1.6", 2},  // rounded to whole bytes
                           Form{"0.4", 0},
                           Form{"8PiB", kMaxBytes},
                           Form{"9007199254740992", kMaxBytes}}) {
    const auto bytes = parse_bytes(form.text);
    ASSERT_TRUE(bytes.ok()) << form.text << ": " << bytes.error().message;
    EXPECT_EQ(*bytes, form.bytes) << form.text;
  }
}

TEST(Units, RefusesOtherTextsForBytes) {
  for (const char* text : {"", " ", "GiB", "eight", "8XiB", "8GiBs", "8GiB!", "8 G iB", "8,5GB",
                           "0x10", "--1", "1e", "\t8", "8GiB ", "1..5"}) {
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
  }
  EXPECT_EQ(parse_bytes("lots").error().message,
            "bad size 'lots', expected a number of bytes such as 8GiB, 500MB or 16e9");
  EXPECT_EQ(parse_bytes("8QB").error().message,
            "unknown unit 'QB' in size '8QB', expected B, KB, MB, GB, TB, KiB, MiB, GiB or TiB");
}

TEST(Units, RefusesBytesOutOfRange) {
  for (const char* text : {"-1", "-1GiB", "9PiB", "1e300", "1e300GiB", "inf", "nan", "nanGB"}) {
    const auto bytes = parse_bytes(text);
    ASSERT_FALSE(bytes.ok()) << text;
  }
  EXPECT_EQ(parse_bytes("-1").error().message, "size '-1' is out of range, expected 0 to 8 PiB");
}

TEST(Units, CutsLongTextsInMessages) {
  const std::string message = parse_bytes(std::string(1000, 'x')).error().message;
  EXPECT_LT(message.size(), 200u);
  EXPECT_THAT(message, HasSubstr("xxx...'"));
}

TEST(Units, ShowsBytesWithThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(10 * 1024), "10.0 KiB");
  EXPECT_EQ(format_bytes(100 * 1024), "100 KiB");
  EXPECT_EQ(format_bytes(Bytes{3} << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(kMaxBytes), "8.00 PiB");
  EXPECT_EQ(format_bytes(-2048), "-2.00 KiB");
}

TEST(Units, GroupsDigits) {
  EXPECT_EQ(format_grouped(0), "0");
  EXPECT_EQ(format_grouped(999), "999");
  EXPECT_EQ(format_grouped(1000), "1,000");
  EXPECT_EQ(format_grouped(58'896'187'392), "58,896,187,392");
  EXPECT_EQ(format_grouped(-123), "-123");
  EXPECT_EQ(format_grouped(-123'456), "-123,456");
  EXPECT_EQ(format_grouped(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Units, ShowsCosts) {
  EXPECT_EQ(format_cost(58.9e9, CostUnit::kFlop), "58.9 Gflop");
  EXPECT_EQ(format_cost(12, CostUnit::kFlop), "12.0 flop");
  EXPECT_EQ(format_cost(0.0123, CostUnit::kSecond), "12.3 ms");
  EXPECT_EQ(format_cost(1.5e-6, CostUnit::kSecond), "1.50 us");
  EXPECT_EQ(format_cost(2.5, CostUnit::kSecond), "2.50 s");
  EXPECT_EQ(format_cost(0, CostUnit::kSecond), "0.00 ns");
}

TEST(Units, CostUnitsComeBack) {
  EXPECT_EQ(*parse_cost_unit("second"), CostUnit::kSecond);
  EXPECT_EQ(*parse_cost_unit("flop"), CostUnit::kFlop);
  EXPECT_EQ(to_string(CostUnit::kSecond), "second");
  EXPECT_EQ(parse_cost_unit("ms").error().message,
            "unknown cost unit 'ms', expected second or flop");
}

TEST(Units, ExactNumbersComeBackBitForBit) {
  Random random(1);
  for (int i = 0; i < 10'000; ++i) {
    const double value =
        std::ldexp(random.real() - 0.5, static_cast<int>(random.between(-1070, 1020)));
    EXPECT_EQ(*parse_double(format_exact(value)), value);
  }
  EXPECT_EQ(format_exact(3), "3");
  EXPECT_EQ(format_exact(0.1), "0.1");
}

TEST(Units, ReadsWholeNumbersAndDecimalsToTheEnd) {
  EXPECT_EQ(*parse_int("-42"), -42);
  EXPECT_EQ(*parse_int("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(*parse_double("1e-3"), 0.001);
  for (const char* text : {"", "1 ", " 1", "1.5", "9223372036854775808", "+1", "1e3"}) {
    EXPECT_FALSE(parse_int(text).ok()) << text;
  }
  for (const char* text : {"", "1 ", "x", "1e999", "inf", "nan", "1.5x"}) {
    EXPECT_FALSE(parse_double(text).ok()) << text;
  }
  EXPECT_EQ(parse_int("ten").error().message, "bad whole number 'ten', expected digits");
}

}  // namespace
}  // namespace regen
