#include "regen/base/json.h"
#include "regen/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regen {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto json = parse_json(text, "f");
  return json.ok() ? "no error" : json.error().message;
}

TEST(Json, AgreesWithTheLibrarysOwnParser) {
  const std::string text =
      R"({"z":[1,-2,3.5,1e3,18446744073709551615,true,false,null],"a":{"b":{},"c":[]},"":"\u00e9\n"})";
  const auto json = parse_json(text, "f");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json->dump(), Json::parse(text).dump());
  EXPECT_EQ(*parse_json("7", "f"), 7);
}

TEST(Json, RefusesARepeatedKey) {
  EXPECT_EQ(error_of(R"({"a":1,"b":2,"a":3})"), "f: key 'a' is given twice in one object");
  EXPECT_EQ(error_of(R"([{"a":1},{"a":1}])"), "no error");
}

TEST(Json, LimitsTheDepth) {
  EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "no error");
  EXPECT_EQ(error_of(std::string(65, '[') + std::string(65, ']')), "f: JSON nested deeper than 64");
}

TEST(Json, SaysWhereTheTextIsBroken) {
  EXPECT_THAT(error_of("{\n\"a\" 1}"), HasSubstr("f: not valid JSON at line 2, column 5"));
  EXPECT_THAT(error_of("1 2"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("1e999"), HasSubstr("number overflow"));
}

// The ordinary parser compares each new key with all earlier ones: 200,000 keys took minutes.
TEST(Json, ReadsAnObjectWithManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
  EXPECT_EQ(error_of(text + "}"), "no error");
  EXPECT_EQ(error_of(text + ",\"777\":1}"), "f: key '777' is given twice in one object");
}

TEST(Json, PutsThePathTogetherForAMessage) {
  const Json document = Json::parse(R"({"ops":[{"cost":-1}]})");
  const JsonCursor root(document, "g.json");
  const JsonCursor ops = root.member("ops", document["ops"]);
  const JsonCursor op = ops.item(0);
  const JsonCursor cost = op.member("cost", document["ops"][0]["cost"]);
  EXPECT_EQ(cost.error("bad").message, "g.json: ops[0].cost: bad");
  EXPECT_EQ(root.error("bad").message, "g.json: bad");
  EXPECT_EQ(cost.whole(0, 3).error().message,
            "g.json: ops[0].cost: -1 found, expected a whole number from 0 to 3");
  EXPECT_EQ(*cost.whole(-1, 3), -1);
  EXPECT_FALSE(cost.not_negative().ok());
  EXPECT_EQ(*cost.finite(), -1.0);
}

TEST(Json, WholeNumbersEndAtTheLimits) {
  const Json values =
      Json::parse("[9223372036854775807, 9223372036854775808, -9223372036854775808]");
  const JsonCursor root(values, "f");
  EXPECT_EQ(*root.item(0).whole(0, INT64_MAX), INT64_MAX);
  EXPECT_FALSE(root.item(1).whole(0, INT64_MAX).ok());
  EXPECT_EQ(*root.item(2).whole(INT64_MIN, 0), INT64_MIN);
}

TEST(Json, KnowsUtf8) {
  for (const char* text :
       {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xef\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  // A lone continuation, cut short, over-long, a surrogate, beyond the last code point.
  for (const char* text : {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xf0\x9f\x98", "\xff"}) {
    EXPECT_FALSE(is_utf8(text));
  }
}

TEST(Json, WritesStrings) {
  const auto written = [](std::string_view text) {
    std::string out;
    const Status status = append_json_string(out, text);
    return status.ok() ? out : status.error().message;
  };
  EXPECT_EQ(written("plain"), "\"plain\"");
  EXPECT_EQ(written("a\"b\\c\n"), R"("a\"b\\c\n")");
  EXPECT_EQ(written("\xc3\xa9"), "\"\xc3\xa9\"");
  EXPECT_THAT(written("\xff"), HasSubstr("is not UTF-8 text"));
}

TEST(Json, QuotesForOneLine) {
  EXPECT_EQ(in_quotes("a\nb"), "'a?b'");
  EXPECT_EQ(in_quotes(std::string(100, 'x')), "'" + std::string(60, 'x') + "...'");
}

TEST(Json, ShowsTheStartOfAValue) {
  EXPECT_EQ(excerpt(Json::object()), "an object");
  EXPECT_EQ(excerpt(Json::array()), "an array");
  EXPECT_EQ(excerpt(Json(nullptr)), "null");
  const std::string shown = excerpt(Json(std::string(1000, 'x')));
  EXPECT_EQ(shown.size(), 63u);
  EXPECT_TRUE(shown.ends_with("xxx..."));
  EXPECT_FALSE(excerpt(Json("\xff")).empty());
}

TEST(Json, BracketsInsideAStringAreNoNesting) {
  EXPECT_TRUE(parse_json("\"" + std::string(100, '[') + "\\\"[\"", "f").ok());
}

TEST(Json, RefusesBrokenTexts) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":1}}", "nul", "\"\xff\"", "1e999"}) {
    EXPECT_FALSE(parse_json(text, "f").ok()) << text;
  }
}

}  // namespace
}  // namespace regen
