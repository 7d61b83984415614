#include "regen/plan/plan_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/base/random.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

Plan small_plan() {
  return {.planner = "by \"hand\"",
          .fingerprint = 0x00c0ffee00c0ffeeULL,
          .steps = {Step::compute(OpId(0)), Step::compute(OpId(3), 1), Step::offload(TensorId(5)),
                    Step::release(TensorId(5)), Step::fetch(TensorId(5))},
          .addresses = {{0, 512, 0}}};
}

std::string refusal(const std::string& text) {
  const auto plan = parse_plan(text, "p.json");
  return plan.ok() ? "accepted" : plan.error().message;
}

// A plan whose steps are `steps` in JSON.
std::string with_steps(const std::string& steps) {
  return R"({"format":"regen-plan","version":1,"steps":)" + steps + "}";
}

TEST(PlanJsonTest, WritesOneFieldPerLine) {
  EXPECT_EQ(write_plan(small_plan()), R"({
"format": "regen-plan",
"version": 1,
"planner": "by \"hand\"",
"graph": "00c0ffee00c0ffee",
"steps": ["c0","c3.1","o5","r5","f5"],
"addresses": [0,512,0]
}
)");
}

TEST(PlanJsonTest, ReadsWhatItWrites) {
  Plan plan = small_plan();
  EXPECT_EQ(parse_plan(write_plan(plan), "").value(), plan);
  plan.addresses.reset();
  EXPECT_EQ(parse_plan(write_plan(plan), "").value(), plan);
  plan.addresses.emplace();  // no allocation at all is not the same as no addresses
  plan.steps.clear();
  EXPECT_EQ(parse_plan(write_plan(plan), "").value(), plan);
  EXPECT_EQ(parse_plan(write_plan(Plan{}), "").value(), Plan{});
}

TEST(PlanJsonTest, ReadsBackTheLargestIdsAndNegativeAddresses) {
  const Plan plan{
      .steps = {Step::compute(OpId(4294967294), 65535), Step::fetch(TensorId(4294967294))},
      .addresses = {{std::numeric_limits<Bytes>::min(), std::numeric_limits<Bytes>::max()}}};
  EXPECT_EQ(parse_plan(write_plan(plan), "").value(), plan);
}

TEST(PlanJsonTest, PredictionsAreWrittenAndNotRead) {
  const Json predicted{{"cost", 1.5}, {"nested", {{"list", {1, "c0", nullptr, true, {{}}}}}}};
  const std::string text = write_plan(small_plan(), predicted);
  EXPECT_EQ(Json::parse(text)["predicted"], predicted);
  EXPECT_EQ(parse_plan(text, "").value(), small_plan());
  EXPECT_TRUE(parse_plan(R"({"predicted":7,"format":"regen-plan","version":1,"steps":[]})", ""));
}

TEST(PlanJsonTest, AllButFormatVersionAndStepsMayBeAbsent) {
  EXPECT_EQ(parse_plan(with_steps(R"(["c1"])"), "").value(),
            (Plan{.steps = {Step::compute(OpId(1))}}));
  EXPECT_EQ(refusal(R"({"format":"regen-plan","version":1})"), "p.json: field 'steps' is missing");
  EXPECT_EQ(refusal(R"({"steps":[]})"), "p.json: field 'format' is missing");
}

TEST(PlanJsonTest, RefusalsNamePlaceValueAndExpectation) {
  EXPECT_THAT(refusal(with_steps(R"(["c0","x1"])")),
              HasSubstr("p.json: steps[1]: 'x1' found, expected c, o, r or f and an id"));
  EXPECT_EQ(refusal(with_steps("7")), "p.json: steps: 7 found, expected an array");
  EXPECT_EQ(refusal(R"({"format":"regen-graph"})"),
            "p.json: format: 'regen-graph' found, expected \"regen-plan\"");
  EXPECT_EQ(refusal(R"({"version":2})"), "p.json: version: 2 found, expected 1");
  EXPECT_EQ(refusal(R"({"graph":"12"})"),
            "p.json: graph: '12' found, expected 16 hexadecimal digits");
  EXPECT_EQ(refusal(R"({"addresses":[1,2.5]})"),
            "p.json: addresses[1]: '2.5' found, expected a whole number of bytes");
  EXPECT_EQ(refusal(R"({"addresses":[18446744073709551615]})"),
            "p.json: addresses[0]: 18446744073709551615 is out of range, expected a whole number "
            "of bytes");
  EXPECT_EQ(refusal(R"({"adresses":[]})"),
            "p.json: unknown field 'adresses', expected those of a plan");
  EXPECT_EQ(refusal(R"({"steps":[],"steps":[]})"), "p.json: field 'steps' appears twice");
  EXPECT_EQ(refusal("[]"), "p.json: an array found, expected an object");
  EXPECT_THAT(refusal("{\n\"steps\": [\"c0\""), HasSubstr("p.json: not valid JSON at line 2"));
}

TEST(PlanJsonTest, RefusesMalformedSteps) {
  for (const char* step : {R"("")",
                           R"("c")",
                           R"("c-1")",
                           R"("c 1")",
                           R"("c1 ")",
                           R"("c1.")",
                           R"("c1.65536")",
                           R"("c1.-1")",
                           R"("r1.1")",
                           R"("c4294967295")",
                           R"("c99999999999999999999")",
                           R"("1")",
                           R"("C1")",
                           R"("c1.1.1")",
                           "1",
                           "null",
                           "true",
                           "[]",
                           "{}",
                           "1.5",
                           R"(["c1"])"}) {
    EXPECT_THAT(refusal(with_steps("[" + std::string(step) + "]")), HasSubstr("steps[0]: "))
        << step;
  }
}

TEST(PlanJsonTest, HostileTextsAreRefusedQuickly) {
  for (const char* text : {"", "{", "}", "null", "\"", "{\"steps\":[\"c1\"", "\xff\xfe", "{}x"}) {
    EXPECT_NE(refusal(text), "accepted") << text;
  }
  const std::string deep(1'000'000, '[');
  EXPECT_NE(refusal(deep), "accepted");
  EXPECT_NE(refusal("{\"predicted\":" + deep), "accepted");
  std::string keys = "{\"predicted\":{";
  for (int i = 0; i < 100'000; ++i) keys += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_NE(refusal(keys), "accepted");
}

TEST(PlanJsonTest, EveryTruncationIsRefused) {
  const std::string text = write_plan(small_plan());
  for (std::size_t size = 0; size + 2 < text.size(); ++size) {
    EXPECT_NE(refusal(text.substr(0, size)), "accepted") << size;
  }
}

TEST(PlanJsonTest, AMillionStepsComeBackEqual) {
  Random random(1);
  Plan plan{.planner = "random", .fingerprint = random.next()};
  plan.addresses.emplace();
  for (int i = 0; i < 1'000'000; ++i) {
    const auto id = static_cast<std::size_t>(random.between(0, 2'000'000));
    const auto choice = static_cast<std::size_t>(random.between(0, 3));
    const Step steps[] = {Step::compute(OpId(id), choice), Step::offload(TensorId(id)),
                          Step::release(TensorId(id)), Step::fetch(TensorId(id))};
    plan.steps.push_back(steps[random.between(0, 3)]);
    plan.addresses->push_back(random.between(0, kMaxBytes));
  }
  const auto again = parse_plan(write_plan(plan), "");
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(*again == plan);
}

}  // namespace
}  // namespace regen
