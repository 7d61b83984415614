// A captured step through all of its states, and what a state may not become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>

#include "regen/base/file.h"
#include "session_fixture.h"

namespace regen::session {
namespace {

using ::testing::HasSubstr;

PlanRequest within(std::optional<Bytes> budget) {
  PlanRequest request;
  request.planners = {&search::own_planner("auto")};
  request.budget = budget;
  request.limits.work = request.least_limits.work = 50'000;
  return request;
}

PlannedStep plan_within(const RecordedStep& recorded, std::optional<Bytes> budget) {
  auto planning = find_plan(recorded, within(budget));
  EXPECT_TRUE(planning.ok()) << planning.error().message;
  EXPECT_TRUE(std::holds_alternative<PlannedStep>(*planning));
  return std::get<PlannedStep>(*planning);
}

// All that two steps leave behind.
std::vector<at::Tensor> run(const PlannedStep& planned, const std::string& folder) {
  auto data = execute::ProgramData::load(folder, planned.recorded().captured_program(), c10::kCPU);
  EXPECT_TRUE(data.ok()) << data.error().message;
  auto compiled = planned.compile({.debug = true});
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_TRUE(execute::bind(compiled->executor(), *data).ok());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(compiled->run().ok());
  EXPECT_EQ(compiled->memory().unforeseen, 0U);
  EXPECT_GT(compiled->memory().arena_bytes, 0);
  std::vector<at::Tensor> left;
  for (std::size_t s = 0; s < data->size(); ++s) {
    const at::Tensor& tensor = data->tensor(execute::StorageId(s));
    if (tensor.defined()) left.push_back(tensor.clone());
  }
  return left;
}

// A state is made by the one before it alone.
static_assert(!std::is_default_constructible_v<RecordedStep>);
static_assert(!std::is_default_constructible_v<PlannedStep>);
static_assert(!std::is_constructible_v<PlannedStep, RecordedStep, Plan>);
static_assert(!std::is_default_constructible_v<CompiledStep>);
static_assert(!std::is_copy_constructible_v<CompiledStep>);

TEST(LifeCycle, FromACapturedProgramToARunningStep) {
  const std::string folder = save_program(make_chain({.update = true}), "life_cycle");
  const auto captured = CapturedStep(*execute::load_program(folder), execute::make_cpu_device())
                            .record({.repeats = 1});
  ASSERT_TRUE(captured.ok()) << captured.error().message;
  RecordedStep recorded = *captured;
  recorded.set_link(std::make_shared<LinkSource>(kTestLink));
  const PlannedStep everything = plan_within(recorded, std::nullopt);
  EXPECT_EQ(everything.report().recomputed, 0U);
  EXPECT_GE(everything.peak_bytes(), recorded.bound_bytes());
  ASSERT_TRUE(everything.report().kept.has_value());
  EXPECT_GT(everything.report().kept->bytes, 0);

  const Bytes budget = (recorded.unplanned_bytes() + recorded.bound_bytes()) / 2;
  const PlannedStep tight = plan_within(recorded, budget);
  EXPECT_LE(tight.peak_bytes(), budget);
  EXPECT_GT(tight.report().recomputed + static_cast<std::size_t>(tight.report().offloaded_bytes),
            0U);
  EXPECT_LT(tight.report().kept->bytes, everything.report().kept->bytes);

  const auto expected = run(everything, folder);
  const auto found = run(tight, folder);
  ASSERT_EQ(expected.size(), found.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(
        std::memcmp(expected[i].const_data_ptr(), found[i].const_data_ptr(), expected[i].nbytes()),
        0)
        << i;
  }
}

TEST(LifeCycle, TextThatIsNoProgramIsRefused) {
  EXPECT_FALSE(CapturedStep::read("{}", "cpu").ok());
  const std::string text = execute::write_program(make_chain());
  EXPECT_TRUE(CapturedStep::read(text).ok());
  EXPECT_THAT(CapturedStep::read(text, "abacus").error().message, HasSubstr("abacus"));
}

TEST(LifeCycle, APlanFromOutsideIsCheckedBeforeItIsOne) {
  const RecordedStep recorded = recorded_chain();
  const PlannedStep planned = plan_within(recorded, std::nullopt);
  const Plan& plan = planned.plan();
  EXPECT_TRUE(recorded.accept(plan, {}).ok());

  Plan bare = plan;
  bare.addresses.reset();
  const auto packed = recorded.accept(bare, {});
  ASSERT_TRUE(packed.ok());
  EXPECT_TRUE(packed->plan().addresses.has_value());

  Plan shifted = plan;
  for (Bytes& address : *shifted.addresses) address += 8;
  EXPECT_THAT(recorded.accept(shifted, {}).error().message, HasSubstr("multiple of 64"));

  Plan foreign = plan;
  foreign.fingerprint ^= 1;
  EXPECT_THAT(recorded.accept(foreign, {}).error().message, HasSubstr("another graph"));

  Plan shorter = plan;
  shorter.steps.pop_back();
  shorter.steps.erase(shorter.steps.begin());
  shorter.addresses.reset();
  EXPECT_FALSE(recorded.accept(shorter, {}).ok());
}

TEST(LifeCycle, WhatASearchClaimsIsLimitedByTheJudge) {
  const RecordedStep recorded = recorded_chain();
  const Plan plan = plan_within(recorded, std::nullopt).plan();
  PlanOrigin boastful;
  boastful.lower_bound = 1e9;
  const auto accepted = recorded.accept(plan, boastful);
  ASSERT_TRUE(accepted.ok());
  EXPECT_EQ(accepted->report().lower_bound, accepted->report().cost);
  EXPECT_EQ(accepted->report().gap, 0);
}

TEST(Refusal, NamesTheOpTheTensorsAndTheLeastBudget) {
  const RecordedStep recorded = recorded_chain();
  const Bytes small = recorded.bound_bytes() - 1;
  const auto planning = find_plan(recorded, within(small));
  ASSERT_TRUE(planning.ok()) << planning.error().message;
  ASSERT_TRUE(std::holds_alternative<Refusal>(*planning));
  Refusal refusal = std::get<Refusal>(*planning);
  EXPECT_TRUE(refusal.proven && refusal.why.proven);
  EXPECT_EQ(refusal.why.budget, small);
  EXPECT_TRUE(refusal.why.bound.op.valid());
  EXPECT_FALSE(refusal.why.bound.live.empty());
  ASSERT_TRUE(refusal.least_budget.has_value());
  EXPECT_GE(*refusal.least_budget, recorded.bound_bytes());

  const std::string text = to_text(refusal);
  EXPECT_THAT(text, HasSubstr("no plan fits into " + format_grouped(small) + " bytes"));
  EXPECT_THAT(text, HasSubstr("'" + refusal.op + "'"));
  EXPECT_THAT(text, HasSubstr("'" + refusal.tensors.at(0) + "'"));
  EXPECT_THAT(text, HasSubstr("the least budget found to work is " +
                              format_grouped(*refusal.least_budget) + " bytes"));
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(to_error(refusal).code, ErrorCode::kInfeasible);

  // The budget that was named works.
  EXPECT_LE(plan_within(recorded, *refusal.least_budget).peak_bytes(), *refusal.least_budget);

  refusal.caller_bytes = 1234;
  EXPECT_THAT(to_text(refusal), HasSubstr("add 1,234 bytes that the caller holds"));
  EXPECT_THAT(to_text(refusal),
              ::testing::EndsWith("a budget of " + format_grouped(*refusal.least_budget + 1234) +
                                  " bytes or more"));
  refusal.why.proven = refusal.proven = false;
  refusal.planner = "auto";
  EXPECT_THAT(to_text(refusal), ::testing::StartsWith("no plan was found (auto): "));
  EXPECT_EQ(to_error(refusal).code, ErrorCode::kLimit);
}

TEST(LinkSource, KeepsWhatAnotherProcessMeasuredAtTheSameTime) {
  const std::string folder = fresh_folder("links");
  const auto device = execute::make_cpu_device();
  const std::string path = folder + "/links.json";
  LinkSourceOptions options{.folder = folder};
  options.measure = [&](execute::ExecutionDevice&) -> Result<Link> {
    Json file = Json::object();
    file[device->name()] = {1.0, 2.0, 3.0};
    file["another device"] = {4.0, 5.0, 6.0};
    file["damaged"] = {4.0, "x"};
    REGEN_TRY(write_file(path, file.dump()));
    return Link{7, 8, 9};
  };
  EXPECT_EQ(*LinkSource(device, options).get(), (Link{1, 2, 3}));
  options.measure = [](execute::ExecutionDevice&) -> Result<Link> {
    ADD_FAILURE() << "it is in the file";
    return Link{};
  };
  LinkSource again(device, options);
  EXPECT_EQ(again.known(), std::nullopt);
  EXPECT_EQ(*again.get(), (Link{1, 2, 3}));
  EXPECT_EQ(again.known(), (Link{1, 2, 3}));
}

TEST(LinkSource, WritesAFileThatCannotBeReadAgain) {
  const std::string folder = fresh_folder("links");
  const auto device = execute::make_cpu_device();
  int measured = 0;
  LinkSourceOptions options{.folder = folder};
  options.measure = [&](execute::ExecutionDevice&) -> Result<Link> {
    ++measured;
    return Link{7, 8, 9};
  };
  for (const char* text : {"", "[1]", "{\"x\": ", "{\"x\": [1.0, 2.0]}"}) {
    ASSERT_TRUE(write_file(folder + "/links.json", text).ok());
    EXPECT_EQ(*LinkSource(device, options).get(), (Link{7, 8, 9}));
    EXPECT_EQ(*LinkSource(device, options).get(), (Link{7, 8, 9}));
  }
  EXPECT_EQ(measured, 4);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++files;
  EXPECT_EQ(files, 1U);
}

}  // namespace
}  // namespace regen::session
