#include "regen/plan/pack/lifetimes_csv.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace regen {
namespace {

LifetimeTable parsed(std::string_view text) {
  auto table = parse_lifetimes_csv(text, "in.csv");
  EXPECT_TRUE(table.ok()) << table.error().message;
  return table.ok() ? *table : LifetimeTable();
}

std::string refusal(std::string_view text) {
  const auto table = parse_lifetimes_csv(text, "in.csv");
  return table.ok() ? "accepted" : table.error().message;
}

TEST(LifetimesCsv, ReadsTheForm) {
  const LifetimeTable table = parsed("id,lower,upper,size\na,0,4,2\nb,-3,6,0\n");
  EXPECT_EQ(table.ids, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(table.lifetimes, (std::vector<Lifetime>{{0, 4, 2}, {-3, 6, 0}}));
}

TEST(LifetimesCsv, ColumnsAreKnownByName) {
  const LifetimeTable table = parsed("size,note,upper,id,offset,lower\n2,x,4,a,77,0\n");
  EXPECT_EQ(table.lifetimes, (std::vector<Lifetime>{{0, 4, 2}}));
}

TEST(LifetimesCsv, ToleratesLineEndsOfOtherSystems) {
  const LifetimeTable expected = parsed("id,lower,upper,size\na,0,4,2\n");
  EXPECT_EQ(parsed("id,lower,upper,size\r\na,0,4,2\r\n"), expected);
  EXPECT_EQ(parsed("id,lower,upper,size\na,0,4,2"), expected);
  EXPECT_EQ(parsed("id,lower,upper,size\na,0,4,2\n\n"), expected);
  EXPECT_EQ(parsed("\xef\xbb\xbfid,lower,upper,size\na,0,4,2\n"), expected);
}

TEST(LifetimesCsv, WhatItWritesItReads) {
  const LifetimeTable table{.ids = {"a", "b"}, .lifetimes = {{0, 4, 2}, {0, 6, kMaxBytes}}};
  EXPECT_EQ(format_lifetimes_csv(table), "id,lower,upper,size\na,0,4,2\nb,0,6,9007199254740992\n");
  EXPECT_EQ(parsed(format_lifetimes_csv(table)), table);
}

TEST(LifetimesCsv, AppendsOffsets) {
  const LifetimeTable table{.ids = {"a", "b"}, .lifetimes = {{0, 4, 2}, {0, 6, 2}}};
  const std::string text = format_lifetimes_csv(table, std::vector<Bytes>{2, 0});
  EXPECT_EQ(text, "id,lower,upper,size,offset\na,0,4,2,2\nb,0,6,2,0\n");
  EXPECT_EQ(parsed(text), table);
}

TEST(LifetimesCsv, RefusesABadHeader) {
  EXPECT_EQ(refusal(""), "in.csv:1: no line, expected a header such as id,lower,upper,size");
  EXPECT_EQ(refusal("id,lower,size\n"),
            "in.csv:1: no column 'upper' in header 'id,lower,size', expected id, lower, upper and "
            "size");
  EXPECT_EQ(refusal("id,lower,upper,size,id\n"),
            "in.csv:1: column 'id' twice in header 'id,lower,upper,size,id', expected each column "
            "once");
}

TEST(LifetimesCsv, RefusesABadRowWithItsLine) {
  const auto row = [](const std::string& text) {
    return refusal("id,lower,upper,size\na,0,1,1\n" + text + "\n");
  };
  EXPECT_EQ(row("b,0,1"), "in.csv:3: 3 fields in 'b,0,1', expected 4 as in the header");
  EXPECT_EQ(row("b,x,1,1"), "in.csv:3: lower 'x', expected a whole number of 64 bits");
  EXPECT_EQ(row("b,0,1.5,1"), "in.csv:3: upper '1.5', expected a whole number of 64 bits");
  EXPECT_EQ(row("b,0,1,"), "in.csv:3: size '', expected a whole number of 64 bits");
  EXPECT_EQ(row("b,0,99999999999999999999,1"),
            "in.csv:3: upper '99999999999999999999', expected a whole number of 64 bits");
  EXPECT_EQ(row("b,0,1,-1"), "in.csv:3: size -1, expected 0 to 9007199254740992");
  EXPECT_EQ(row("b,0,1,9007199254740993"),
            "in.csv:3: size 9007199254740993, expected 0 to 9007199254740992");
  EXPECT_EQ(row("b,2,2,1"), "in.csv:3: upper 2, expected more than lower, which is 2");
  EXPECT_EQ(row("a,0,1,1"), "in.csv:3: id 'a' again, expected each id once");
  EXPECT_EQ(row(",0,1,1"), "in.csv:3: empty id, expected a name");
}

}  // namespace
}  // namespace regen
