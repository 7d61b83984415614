// A session over its life: plans that are kept, found again, given and refused; bytes that change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "regen/base/file.h"
#include "regen/plan/plan_json.h"
#include "regen/session/running_searches.h"
#include "regen/session/stored_plan.h"
#include "session_fixture.h"

namespace regen::session {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> plan_files(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("plan-")) paths.push_back(entry.path().string());
  }
  return paths;
}

// A stored plan without the time that its search took.
Json without_clock(const std::string& text) {
  auto document = parse_json(text, "plan");
  EXPECT_TRUE(document.ok()) << document.error().message;
  (*document)["report"].erase("seconds");
  return *document;
}

// Times and costs are those of the file of measurements, so that all sessions of a folder agree.
class CachedSessions : public ::testing::Test {
 protected:
  CachedSessions() : folder_(fresh_folder("cache")) {}

  std::unique_ptr<Session> open(const std::string& budget = "80%", ChainOptions chain = {}) {
    chain.update = true;
    Settings settings = test_settings(budget);
    settings.cache_folder = folder_;
    return open_session(captured_chain(chain), settings);
  }
  std::unique_ptr<Session> planned(const std::string& budget = "80%", ChainOptions chain = {}) {
    auto session = open(budget, chain);
    const Status status = session->plan();
    EXPECT_TRUE(status.ok()) << status.error().message;
    return session;
  }

  const std::string folder_;
};

TEST_F(CachedSessions, AKeptPlanIsFoundAgain) {
  const auto first = planned();
  ASSERT_EQ(plan_files(folder_).size(), 1U);
  const auto again = planned();
  EXPECT_EQ(again->planned().plan(), first->planned().plan());
  EXPECT_EQ(again->planned().report(), first->planned().report());
  EXPECT_EQ(again->planned_for(), first->planned_for());
  planned("90%");
  EXPECT_EQ(plan_files(folder_).size(), 2U);
}

TEST_F(CachedSessions, OnlyWhatASearchSaidIsTakenFromAFile) {
  const auto first = planned();
  const std::string path = plan_files(folder_).at(0);
  Json file = *parse_json(*read_file(path), path);
  file["report"]["note"] = "from the cache";
  file["report"]["lower_bound"] = 1e12;
  file["report"]["peak_bytes"] = 1;
  file["report"]["cost"] = 1e-9;
  ASSERT_TRUE(write_file(path, file.dump()).ok());
  const auto again = planned();
  const PlanReport& report = again->planned().report();
  EXPECT_EQ(report.origin.note, "from the cache");
  EXPECT_EQ(report.peak_bytes, first->planned().report().peak_bytes);
  EXPECT_EQ(report.cost, first->planned().report().cost);
  EXPECT_LE(report.lower_bound, report.cost);
}

TEST_F(CachedSessions, AHostileFileIsIgnoredAndReplaced) {
  const auto first = planned();
  const std::string path = plan_files(folder_).at(0);
  const std::string good = *read_file(path);
  const Json whole = *parse_json(good, path);

  std::vector<std::string> files{"",
                                 "{}",
                                 "[1]",
                                 "null",
                                 good.substr(0, good.size() / 2),
                                 std::string(1000, '['),
                                 std::string("\xff\xfe\x00garbage", 10),
                                 R"({"plan": "{}", "report": {}})",
                                 R"({"plan": 3, "report": null})"};
  const auto with = [&](auto change) {
    Json file = whole;
    change(file);
    files.push_back(file.dump());
  };
  with([](Json& file) { file["key"] = "another"; });
  with([](Json& file) { file["key"] = 3; });
  with([](Json& file) { file["version"] = 99; });
  with([](Json& file) { file["plan"] = "text"; });
  with([](Json& file) { file["plan"]["steps"] = {"c0", "x1"}; });
  with([](Json& file) { file["plan"]["steps"] = {"c999999"}; });
  with([](Json& file) { file["plan"]["steps"] = Json::array(); });
  with([](Json& file) { file["plan"]["addresses"] = {-1}; });
  with([](Json& file) { file["plan"]["addresses"][0] = 1 << 30; });
  with([](Json& file) { file["plan"]["addresses"][0] = 1; });
  with([](Json& file) { file["plan"]["graph"] = "00c0ffee00c0ffee"; });
  with([](Json& file) { file["report"] = Json::array(); });
  with([](Json& file) { file["report"]["lower_bound"] = "much"; });
  with([](Json& file) { file["report"]["work"] = -1; });
  with([](Json& file) { file["report"]["status"] = "excellent"; });
  for (const std::string& text : files) {
    ASSERT_TRUE(write_file(path, text).ok());
    const auto session = planned();
    EXPECT_EQ(session->planned().plan(), first->planned().plan()) << text.substr(0, 80);
    EXPECT_TRUE(session->compile().ok());
    EXPECT_EQ(without_clock(*read_file(path)), without_clock(good)) << text.substr(0, 80);
  }
  EXPECT_EQ(plan_files(folder_).size(), 1U);
}

// A plan of the right graph under the right key, but larger than the budget.
TEST_F(CachedSessions, APlanThatDoesNotFitIsReplaced) {
  const auto everything = planned("200%");
  const std::string larger = *read_file(plan_files(folder_).at(0));
  const auto first = planned("80%");
  const std::string path = PlanCache(folder_).path([&] {
    PlanKey key;
    key.fingerprint = first->recorded().graph().fingerprint();
    key.base_seconds = first->recorded().base_seconds();
    key.budget = *first->budget();
    key.planners = first->settings().planners;
    key.limits = first->settings().first_limits(true);
    key.link = kTestLink;
    return key;
  }());
  Json file = *parse_json(larger, path);
  file["key"] = first->planned_for();
  ASSERT_TRUE(write_file(path, file.dump()).ok());
  const auto again = planned("80%");
  EXPECT_LE(again->predicted_peak(), **again->gross_budget());
  EXPECT_EQ(again->planned().plan(), first->planned().plan());
}

TEST_F(CachedSessions, AFolderThatCannotBeWrittenIsAWarning) {
  auto session = open();
  std::filesystem::remove_all(folder_);
  ASSERT_TRUE(write_file(folder_, "a file").ok());
  EXPECT_TRUE(session->plan().ok());
  const auto warnings = session->take_warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("the plan is not kept"));
  EXPECT_TRUE(session->take_warnings().empty());
}

TEST(Session, RefusesABudgetAndSaysWhy) {
  auto session = open_session(captured_chain(), test_settings("1000"));
  const Status status = session->plan();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInfeasible);
  ASSERT_TRUE(session->refusal().has_value());
  EXPECT_EQ(status.error().message, to_text(*session->refusal()));
  EXPECT_EQ(*session->least_budget(), session->refusal()->least_budget);
  EXPECT_FALSE(session->compile().ok());
  // Refused again, and not once the budget is the one that was named.
  EXPECT_FALSE(session->plan().ok());
  session->settings().budget = Budget::from_bytes(*session->refusal()->least_budget);
  EXPECT_TRUE(session->plan().ok());
  EXPECT_FALSE(session->refusal().has_value());
  EXPECT_TRUE(*session->fits());
}

TEST(Session, WhatTheCallerHoldsIsPartOfTheBudget) {
  auto session = open_session(captured_chain(), test_settings("90%"));
  ASSERT_TRUE(session->plan().ok());
  const Bytes before = **session->budget();
  const std::string key = session->planned_for();
  session->set_caller_bytes(session->planned().peak_bytes() / 4);
  EXPECT_GT(**session->gross_budget(), before);
  EXPECT_LT(**session->budget(), before);
  ASSERT_TRUE(session->plan().ok());
  EXPECT_NE(session->planned_for(), key);
  EXPECT_LE(session->predicted_peak(), **session->gross_budget());
  const std::string text = to_text(session->report());
  EXPECT_THAT(text, HasSubstr("for what the caller holds"));
  EXPECT_THAT(text, HasSubstr("plan by auto"));
}

TEST(Session, TakesAPlanFromAFile) {
  const std::string folder = fresh_folder("plans");
  auto first = open_session(captured_chain(), test_settings("80%"));
  ASSERT_TRUE(first->plan().ok());
  Settings settings = test_settings("100%");
  settings.plan_file = folder + "/plan.json";
  ASSERT_TRUE(write_file(settings.plan_file, write_plan(first->planned().plan())).ok());
  auto given = open_session(captured_chain(), settings);
  ASSERT_TRUE(given->plan().ok());
  EXPECT_EQ(given->planned().plan(), first->planned().plan());
  EXPECT_EQ(given->settings().background_seconds(false), 0);
  ASSERT_EQ(given->points().size(), 1U);
  given->settings().budget = Budget::from_bytes(10'000);
  EXPECT_THAT(given->plan().error().message, HasSubstr("the plan in " + settings.plan_file));
  auto other = open_session(captured_chain({.layers = 3, .update = true}), settings);
  EXPECT_THAT(other->plan().error().message, HasSubstr("another graph"));
}

TEST(Session, GivesItsPlanToOtherRanks) {
  auto first = open_session(captured_chain(), test_settings("80%"));
  auto second = open_session(captured_chain(), test_settings("80%"));
  ASSERT_TRUE(first->plan().ok());
  ASSERT_TRUE(second->take_stored_plan(first->stored_plan()).ok());
  EXPECT_EQ(second->planned().plan(), first->planned().plan());
  ASSERT_TRUE(second->settle().ok());
  EXPECT_TRUE(second->compile().ok());
  auto other = open_session(captured_chain({.layers = 3, .update = true}), test_settings("80%"));
  EXPECT_THAT(other->take_stored_plan(first->stored_plan()).error().message,
              HasSubstr("another graph"));
  EXPECT_FALSE(other->has_plan());
}

TEST(Session, FollowsTheLimitOfItsJob) {
  Settings settings = test_settings("1");
  settings.budget.reset();
  settings.releasable = true;
  auto probe = open_session(captured_chain(), test_settings("100%"));
  const Bytes whole = 2 * probe->recorded().unplanned_bytes();
  Surroundings surroundings;
  surroundings.job = JobBytes{"train", whole, whole};
  surroundings.memory = std::make_shared<JobMemory>();
  auto session = open_session(captured_chain(), settings, surroundings);
  const auto points = session->points();
  ASSERT_GT(points.size(), 1U);
  std::vector<Bytes> ready;
  session->on_ready([&](Bytes bytes) { ready.push_back(bytes); });

  ASSERT_TRUE(session->follow_limit(whole).ok());
  EXPECT_EQ(session->limit_in_use(), whole);
  ASSERT_TRUE(session->compile().ok());
  ASSERT_EQ(ready.size(), 1U);
  const double fast = session->planned().report().cost;

  // Fewer bytes: another plan, which is to be compiled.
  ASSERT_TRUE(session->follow_limit(points[0].bytes).ok());
  EXPECT_FALSE(session->compiled());
  EXPECT_LE(session->predicted_peak(), points[0].bytes);
  EXPECT_GE(session->planned().report().cost, fast);
  ASSERT_TRUE(session->compile().ok());
  EXPECT_EQ(ready.back(), session->predicted_peak());
  // A few more bytes that change nothing: the plan stays in place, and the job says so.
  const std::size_t confirmed = ready.size();
  ASSERT_TRUE(session->follow_limit(points[0].bytes + 1).ok());
  EXPECT_TRUE(session->compiled());
  EXPECT_EQ(ready.size(), confirmed + 1);
  // Too few.
  EXPECT_FALSE(session->follow_limit(1000).ok());
  EXPECT_TRUE(session->refusal().has_value());
}

TEST(Session, SearchesForABetterPlanBesideTheTraining) {
  Settings settings = test_settings("80%");
  settings.link = kNoLink;
  settings.improve = 5.0;
  auto session = open_session(captured_chain({.layers = 6, .update = true}), settings);
  ASSERT_TRUE(session->plan().ok());
  // An expensive plan in its place, so that there is something to improve.
  ASSERT_TRUE(*session->plan_by({"griewank"}, {.work = 50'000}));
  const double first = session->planned().report().cost;
  ASSERT_TRUE(session->compile().ok());
  const std::size_t before = num_searches();
  ASSERT_TRUE(session->search_beside().ok());
  ASSERT_NE(session->search(), nullptr);
  EXPECT_EQ(num_searches(), before + 1);
  ASSERT_TRUE(session->search_beside().ok());
  EXPECT_EQ(num_searches(), before + 1);  // one at a time
  session->search()->wait();
  ASSERT_TRUE(*session->take_better_plan(7));
  EXPECT_FALSE(session->compiled());
  const PlanReport& report = session->planned().report();
  EXPECT_LT(report.cost, first);
  ASSERT_TRUE(report.origin.improvement.has_value());
  EXPECT_EQ(report.origin.improvement->before_step, 7);
  EXPECT_EQ(report.origin.improvement->earlier_cost, first);
  EXPECT_THAT(to_text(session->report()), HasSubstr("improved    before step 7"));
  ASSERT_TRUE(session->search_beside().ok());
  EXPECT_EQ(session->search(), nullptr);  // the plan was improved already
  EXPECT_FALSE(*session->take_better_plan(8));
}

// An expensive plan in use, and a search that the settings ask for.
std::unique_ptr<Session> to_be_improved(const search::Registry& registry) {
  Settings settings = test_settings("80%");
  settings.improve = 1.0;
  Surroundings surroundings;
  surroundings.registry = &registry;
  auto session = open_session(captured_chain(), settings, surroundings);
  EXPECT_TRUE(session->plan().ok());
  EXPECT_TRUE(*session->plan_by({"griewank"}, {.work = 50'000}));
  return session;
}

void expect_search_warning(Session& session, const std::string& what) {
  const auto warnings = session.take_warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr(what));
  EXPECT_THAT(warnings[0], HasSubstr("; the plan in use stays"));
  EXPECT_EQ(warnings[0].find('\n'), std::string::npos);
}

TEST(Session, ASearchThatFailsIsAWarning) {
  search::Registry registry = published::every_planner();
  registry.add(
      {"throws", "For this test", [](const search::Problem&, Effort&) -> Result<search::Proposal> {
         throw std::runtime_error("out of\nluck");
       }});
  auto session = to_be_improved(registry);
  const auto report = session->planned().shared_report();
  session->settings().planners = {"throws"};
  ASSERT_TRUE(session->search_beside().ok());
  ASSERT_NE(session->search(), nullptr);
  session->search()->wait();
  EXPECT_FALSE(*session->take_better_plan(2));
  EXPECT_EQ(session->planned().shared_report(), report);
  expect_search_warning(*session, "out of luck");
}

TEST(Session, ASearchThatCannotBeginIsAWarning) {
  auto session = to_be_improved(published::every_planner());
  session->settings().planners = {"guesswork"};
  ASSERT_TRUE(session->search_beside().ok());
  EXPECT_EQ(session->search(), nullptr);
  expect_search_warning(*session, "unknown planner 'guesswork'");
}

TEST(Settings, SayHowLongIsSearched) {
  Settings settings;
  EXPECT_EQ(settings.background_seconds(true), 0);
  EXPECT_EQ(settings.background_seconds(false), kBackgroundSeconds);
  EXPECT_EQ(settings.first_limits(true).seconds, kWholeSeconds);
  EXPECT_EQ(settings.first_limits(false).seconds, kFirstSeconds);
  settings.work_limit = 100;
  EXPECT_EQ(settings.background_seconds(false), 0);
  EXPECT_EQ(settings.first_limits(false).seconds, Limits{}.seconds);
  EXPECT_EQ(settings.first_limits(false).work, 100);
  EXPECT_EQ(settings.limits_within(3).work, 100);
  settings.improve = 3;
  EXPECT_EQ(settings.background_seconds(true), 3);
  EXPECT_EQ(settings.background_limits(true).work, Limits{}.work);
  EXPECT_EQ(settings.background_limits(true).bytes, kBackgroundBytes);
  EXPECT_EQ(settings.first_limits(true).bytes, Limits{}.bytes);
  settings.plan_file = "plan.json";
  EXPECT_EQ(settings.background_seconds(true), 0);
}

}  // namespace
}  // namespace regen::session
