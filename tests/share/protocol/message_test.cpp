#include "regen/share/protocol/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/base/random.h"
#include "regen/share/protocol/job.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

const Message kAsk{MessageType::kStatus, {{"a", 1}}};

std::string header(std::uint16_t version, std::uint16_t type, std::uint32_t length) {
  std::string bytes(kMagic);
  for (int i = 0; i < 2; ++i) bytes += static_cast<char>(version >> (8 * i));
  for (int i = 0; i < 2; ++i) bytes += static_cast<char>(type >> (8 * i));
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(length >> (8 * i));
  return bytes;
}

std::string refusal(const std::string& bytes) {
  FrameReader reader(Direction::kToDaemon);
  reader.append(bytes);
  const auto message = reader.next();
  return message.ok() ? "accepted" : message.error().message;
}

TEST(Message, ComesBackWholeHoweverItIsCut) {
  const std::string bytes = encode(kAsk) + encode({MessageType::kIdle, Json::object()});
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    FrameReader reader(Direction::kToDaemon);
    std::vector<Message> messages;
    for (const std::string& part : {bytes.substr(0, cut), bytes.substr(cut)}) {
      reader.append(part);
      for (auto next = reader.next(); next.ok() && next->has_value(); next = reader.next()) {
        messages.push_back(**next);
      }
    }
    ASSERT_EQ(messages.size(), 2u) << "cut at " << cut;
    EXPECT_EQ(messages[0], kAsk);
    EXPECT_EQ(messages[1].type, MessageType::kIdle);
    EXPECT_FALSE(reader.inside_message());
  }
}

TEST(Message, RefusalsNameValueAndExpectation) {
  EXPECT_EQ(refusal("X"), "message begins with 'X', expected 'RGSH' (not a regen program?)");
  EXPECT_EQ(refusal(header(2, 1, 2) + "{}"),
            "message has version 2, expected 1 (another version of regen?)");
  EXPECT_EQ(refusal(header(1, 99, 2) + "{}"), "message has the unknown type 99, expected 1 to 11");
  EXPECT_EQ(refusal(header(1, 65, 2) + "{}"), "message has the unknown type 65, expected 1 to 11");
  EXPECT_EQ(refusal(header(1, 1, 0xffffffff)),
            "message has a body of 4294967295 bytes, expected 2 to 65536");
  EXPECT_EQ(refusal(header(1, 1, 0)), "message has a body of 0 bytes, expected 2 to 65536");
  EXPECT_THAT(refusal(header(1, 1, 2) + "[]"), HasSubstr("expected an object"));
  EXPECT_THAT(refusal(header(1, 1, 3) + "{x}"), HasSubstr("message body"));
}

TEST(Message, AHalfMessageIsNamedWhenTheStreamEnds) {
  FrameReader reader(Direction::kToDaemon);
  reader.append(encode(kAsk).substr(0, 15));
  ASSERT_TRUE(reader.next().ok());
  EXPECT_TRUE(reader.inside_message());
  EXPECT_EQ(reader.cut_off().message, "message ends after 15 bytes, expected at least 19");
}

TEST(Message, NoBytesCrashTheReader) {
  Random random(3);
  const std::string good = encode(kAsk);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (auto changes = random.between(1, 4); changes > 0; --changes) {
      bytes[random.next() % bytes.size()] = static_cast<char>(random.next());
    }
    FrameReader reader(Direction::kToDaemon);
    reader.append(bytes);
    const auto message = reader.next();
    EXPECT_TRUE(message.ok() || !message.error().message.empty());
  }
}

TEST(Message, ErrorsKeepTheirCode) {
  for (const Error& error : {bad_input("a"), infeasible("b"), limit_reached("c"), missing("d")}) {
    EXPECT_EQ(decode_error(error_message(error).body), error);
  }
  EXPECT_EQ(decode_error(Json::object()), bad_input("(nothing said)"));
}

JobSpec full_spec() {
  return {.name = "train",
          .identity = "1-2",
          .device = "gpu0",
          .priority = 3,
          .weight = 0.5,
          .memory = 100,
          .least_bytes = 40,
          .points = {{40, 2'000'000'000}, {100, 1'500'000'000}},
          .deadline = 5'000'000,
          .again = true};
}

Result<JobSpec> read_job(const Json& json) {
  return job_from_json(JsonCursor(json, "job"));
}

TEST(JobSpec, ComesBackFromJson) {
  const auto read = read_job(to_json(full_spec()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, full_spec());
}

TEST(JobSpec, RefusesWhatMakesNoSense) {
  const std::vector<std::tuple<const char*, Json, const char*>> cases{
      {"name", "", "expected 1 to 100 printable bytes"},
      {"name", std::string(101, 'x'), "expected 1 to 100 printable bytes"},
      {"name", "a\nb", "expected 1 to 100 printable bytes"},
      {"name", 7, "job: name"},
      {"priority", -1, "priority"},
      {"priority", 1'000'001, "1000000"},
      {"weight", 0, "expected a number from 0.001"},
      {"weight", "much", "weight"},
      {"memory", -5, "memory"},
      {"memory", 39, "expected at least the 40 that it says it needs"},
      {"points", Json::array({1}), "points[0]"},
      {"points", Json::array({Json::array({1, -1})}), "points[0][1]"},
      {"deadline_seconds", -1, "deadline_seconds"},
      {"colour", "red", "colour"},
  };
  for (const auto& [key, value, expected] : cases) {
    Json json = to_json(full_spec());
    json[key] = value;
    const auto read = read_job(json);
    ASSERT_FALSE(read.ok()) << key << " " << value;
    EXPECT_THAT(read.error().message, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace regen::share
