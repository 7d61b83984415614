#include "regen/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regen {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Json, ParsesAndKeepsTheOrderOfKeys) {
  const auto json = parse_json(R"({"z": 1, "a": [true, null]})", "f");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->dump(), R"({"z":1,"a":[true,null]})");
}

TEST(Json, SaysWhereTheTextIsBroken) {
  const auto message = parse_json("{\"a\":\n x}", "f.json").error().message;
  EXPECT_THAT(message, HasSubstr("f.json: not valid JSON at line 2, column 2"));
  EXPECT_THAT(message, Not(HasSubstr("exception")));
  for (const char* text : {"", "{", "[1,]", "{\"a\":1}}", "nul", "\"\xff\"", "1e999"}) {
    EXPECT_FALSE(parse_json(text, "f").ok()) << text;
  }
}

TEST(Json, LimitsTheDepth) {
  EXPECT_TRUE(parse_json(std::string(64, '[') + std::string(64, ']'), "f").ok());
  EXPECT_EQ(parse_json(std::string(1'000'000, '['), "f").error().message,
            "f: JSON nested deeper than 64");
  // Brackets inside a string are no nesting.
  EXPECT_TRUE(parse_json("\"" + std::string(100, '[') + "\\\"[\"", "f").ok());
}

class JsonViewTest : public testing::Test {
 protected:
  JsonViewTest()
      : document_(*parse_json(R"({"n": -5, "u": 18446744073709551615, "d": 1.5, "s": "text",
                                            "b": true, "l": [1, {"x": 2}], "big": 1e300})",
                              "f")),
        view_(document_, "f: ") {}

  JsonView at(const char* key) const { return *view_.at(key); }

  Json document_;
  JsonView view_;
};

TEST_F(JsonViewTest, ReadsValues) {
  EXPECT_EQ(*at("n").as_int(-10, 10), -5);
  EXPECT_EQ(*at("d").as_finite(), 1.5);
  EXPECT_EQ(*at("n").as_finite(), -5);
  EXPECT_EQ(*at("s").as_string(), "text");
  EXPECT_EQ(*at("b").as_bool(), true);
  EXPECT_EQ(*at("l").array_size(), 2u);
  EXPECT_TRUE(view_.has("n"));
  EXPECT_FALSE(view_.has("m"));
  EXPECT_FALSE(at("l").has("m"));
}

TEST_F(JsonViewTest, NamesThePathOfARefusal) {
  EXPECT_EQ(view_.at("m").error().message, "f: : field 'm' is missing");
  EXPECT_EQ(at("l").item(1).at("x")->as_string().error().message,
            "f: l[1].x: 2 found, expected a string");
  EXPECT_EQ(at("n").as_int(0, 9).error().message,
            "f: n: -5 is out of range, expected a whole number from 0 to 9");
  EXPECT_EQ(at("u").as_int(0, 9).error().message,
            "f: u: 18446744073709551615 is out of range, expected a whole number from 0 to 9");
  EXPECT_EQ(at("d").as_int(0, 9).error().message,
            "f: d: 1.5 found, expected a whole number from 0 to 9");
  EXPECT_EQ(at("s").as_finite().error().message, "f: s: \"text\" found, expected a number");
  EXPECT_EQ(at("s").as_bool().error().message, "f: s: \"text\" found, expected true or false");
  EXPECT_EQ(at("s").array_size().error().message, "f: s: \"text\" found, expected an array");
  EXPECT_EQ(at("l").at("x").error().message, "f: l: an array found, expected an object");
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

}  // namespace
}  // namespace regen
