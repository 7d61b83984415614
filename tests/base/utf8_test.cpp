#include "regen/base/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "regen/base/json.h"
#include "regen/base/text.h"

namespace regen {
namespace {

constexpr const char* kCharacters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};

TEST(FirstBytes, NeverCutACharacter) {
  for (const char* character : kCharacters) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += character;
    for (std::size_t limit = 0; limit <= text.size() + 1; ++limit) {
      const std::string_view cut = first_bytes(text, limit);
      EXPECT_TRUE(is_utf8(cut)) << limit;
      EXPECT_LE(cut.size(), limit);
      EXPECT_GT(cut.size() + std::string_view(character).size(), std::min(limit, text.size()));
    }
  }
  EXPECT_EQ(first_bytes("\x80\x80\x80\x80\x80\x80", 3), "\x80\x80\x80");
}

TEST(AsUtf8, KeepsCharactersAndReplacesTheRest) {
  for (const char* character : kCharacters) EXPECT_EQ(as_utf8(character), character);
  EXPECT_EQ(as_utf8("a\xff\xc3\xa9\xe2\x82"), "a?\xc3\xa9??");
  EXPECT_EQ(as_utf8(""), "");
}

// A name of 60 bytes ends inside a character of it.
TEST(Messages, AreCutBetweenCharacters) {
  for (const char* character : kCharacters) {
    for (const char* before : {"", "x", "xy", "xyz"}) {
      std::string text = before;
      while (text.size() < 300) text += character;
      EXPECT_TRUE(is_utf8(excerpt(Json(text)))) << text;
      EXPECT_TRUE(is_utf8(in_quotes(text))) << text;
      EXPECT_TRUE(is_utf8(on_one_line(text, 200))) << text;
    }
  }
}

}  // namespace
}  // namespace regen
