// Algorithms found by refusing scratch memory, chosen by plans and taken at run time: the numbers
// that come out show which algorithm made them.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "choosy_op.h"
#include "regen/base/file.h"
#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/execute/program/call_arguments.h"
#include "regen/execute/program/program_data.h"
#include "regen/execute/record/algorithm_search.h"
#include "regen/execute/run/direct_step.h"
#include "regen/execute/run/executor.h"
#include "regen/graph/format_regen.h"
#include "regen/plan/explain.h"
#include "regen/search/build/variant_view.h"
#include "regen/search/services/addressed_plan.h"
#include "regen/search/services/least_budget.h"
#include "small_program.h"
#include "step_fixture.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::execute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Bytes kMiB = 1 << 20;
constexpr Bytes kReserve = 1 << 14;

Json call_mask() {
  return Json::array({true});
}

// y = choosy(...choosy(x * w0) ...) and the gradients of all w by the product rule; the last layer
// is of another kind, so another problem.
Program choosy_chain(std::size_t layers, int last_kind = 1, std::int64_t width = 1 << 14) {
  ProgramMaker maker("choosy");
  std::vector<ValueId> values{maker.bring("x", Role::kInput, {width})};
  std::vector<ValueId> weights;
  for (std::size_t i = 0; i < layers; ++i) {
    weights.push_back(maker.bring("w" + std::to_string(i), Role::kParameter, {width}));
    const int kind = i + 1 == layers ? last_kind : 0;
    values.push_back(maker.call1("regen_test::choosy",
                                 {ref(values.back()), ref(weights.back()), kind, call_mask()}));
  }
  maker.result(maker.call1("aten::sum", {ref(values.back())}), ResultKind::kOutput, "loss");
  maker.phase = Phase::kBackward;
  ValueId gradient = maker.call1("aten::ones_like", {ref(values.back())});
  for (std::size_t i = layers; i-- > 0;) {
    maker.result(maker.call1("aten::mul.Tensor", {ref(gradient), ref(values[i])}),
                 ResultKind::kGradient, "w" + std::to_string(i));
    if (i > 0) gradient = maker.call1("aten::mul.Tensor", {ref(gradient), ref(weights[i])});
  }
  return maker.program();
}

RecordOptions with_algorithms(Algorithms algorithms, RecordCache* cache) {
  return {.repeats = 3, .patience = 1, .cache = cache, .algorithms = algorithms};
}

class Chain : public StepFixture {
 public:
  explicit Chain(Program program, Algorithms algorithms = Algorithms::kAny,
                 const CpuDeviceOptions& device = {}, RecordCache* cache = nullptr)
      : StepFixture((forget_choosy(), std::move(program)), device,
                    with_algorithms(algorithms, cache)) {}

  void record_again(Algorithms algorithms, RecordCache* cache = nullptr) {
    StepFixture::record_again(with_algorithms(algorithms, cache));
  }

  ExecutionDevice& device() { return *device_; }

  // The first op of this type, counted from 0.
  OpId op(const std::string& type, std::size_t number = 0) const {
    for (OpId op : graph().ops()) {
      if (graph().type(op) == type && number-- == 0) return op;
    }
    return {};
  }

  search::Outcome solve(const std::string& planner, std::optional<Bytes> budget = {}) {
    auto outcome = search::solve_addressed(planner, {.graph = &graph(), .budget = budget},
                                           {.alignment = device_->alignment()}, {.work = 300'000});
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return *outcome;
  }

  Result<std::unique_ptr<Executor>> compile(const Plan& plan) {
    return Executor::compile(recording_, step_, plan, device_,
                             {.reserve = kReserve, .debug = true});
  }

  std::vector<at::Tensor> run(const Plan& plan) {
    auto executor = compile(plan);
    EXPECT_TRUE(executor.ok()) << executor.error().message;
    EXPECT_TRUE(bind(**executor, *data_).ok());
    const Status status = (*executor)->run(0);
    EXPECT_TRUE(status.ok()) << status.error().message;
    deviations = (*executor)->deviations();
    std::vector<at::Tensor> results;
    for (std::size_t r = 0; r < program_.results.size(); ++r) {
      results.push_back((*executor)->result(r));
    }
    return results;
  }

  // The bare operators, on the same thread.
  std::vector<at::Tensor> run_directly() {
    auto direct = *DirectStep::make(program_, *data_, device_);
    EXPECT_TRUE(direct->run().ok());
    std::vector<at::Tensor> results;
    for (std::size_t r = 0; r < program_.results.size(); ++r) {
      results.push_back(direct->result(r).clone());
    }
    return results;
  }

  std::vector<Deviation> deviations;  // of the last run
};

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

std::vector<Bytes> workspaces(const Graph& graph, OpId op) {
  std::vector<Bytes> list;
  for (VariantId v : graph.variants(op)) list.push_back(graph.workspace(v));
  return list;
}

std::size_t choice_of(const search::Outcome& outcome, OpId op) {
  for (const Step& step : outcome.plan->steps) {
    if (step.kind() == StepKind::kCompute && step.op() == op) return step.choice();
  }
  return SIZE_MAX;
}

TEST(AlgorithmSearch, LowersTheCapUntilNothingIsLeft) {
  Chain chain(choosy_chain(2, 0));
  const OpId op = chain.op("choosy");
  EXPECT_THAT(workspaces(chain.graph(), op), ElementsAre(4 * kMiB, 2 * kMiB, 0));
  const auto variants = chain.graph().variants(op);
  EXPECT_LT(chain.graph().cost(variants[0]), chain.graph().cost(variants[1]));
  EXPECT_LT(chain.graph().cost(variants[1]), chain.graph().cost(variants[2]));
  EXPECT_EQ(search::plain_alternatives(chain.graph(), chain.op("mul")).size(), 1u);
}

TEST(AlgorithmSearch, LeavesOutWhatIsSlowerAndNeedsNoLess) {
  Chain chain(choosy_chain(2, 1));
  EXPECT_THAT(workspaces(chain.graph(), chain.op("choosy", 1)), ElementsAre(4 * kMiB, 0));
}

TEST(AlgorithmSearch, AnOperatorThatCannotDoWithLessHasOneWay) {
  Chain chain(choosy_chain(2, 2));
  EXPECT_EQ(chain.graph().variants(chain.op("choosy", 1)).size(), 1u);
  EXPECT_FALSE(chain.graph().choice_group(chain.op("choosy", 1)).valid());
}

TEST(AlgorithmSearch, OfManyTheSmallestIsAmongTheFew) {
  Chain chain(choosy_chain(2, 3));
  EXPECT_THAT(workspaces(chain.graph(), chain.op("choosy", 1)),
              ElementsAre(16 * kMiB, 12 * kMiB, 8 * kMiB, kMiB / 2));
}

TEST(AlgorithmSearch, ByDefaultThereIsNone) {
  Chain chain(choosy_chain(2), Algorithms::kDefault);
  for (OpId op : chain.graph().ops()) {
    EXPECT_EQ(search::plain_alternatives(chain.graph(), op).size(), 1u);
    EXPECT_FALSE(chain.graph().choice_group(op).valid());
  }
}

// What was tried is remembered on a thread that is gone.
TEST(AlgorithmSearch, LeavesNoTraceOnTheThreadsOfOthers) {
  Chain chain(choosy_chain(3), Algorithms::kDefault);
  const std::vector<at::Tensor> before = chain.run_directly();
  forget_choosy();
  chain.record_again(Algorithms::kAny);
  EXPECT_TRUE(same_bits(chain.run_directly(), before));
}

TEST(AlgorithmSearch, CallsOfOneProblemAreOneGroup) {
  Chain chain(choosy_chain(4));
  const Graph& graph = chain.graph();
  const ChoiceGroupId group = graph.choice_group(chain.op("choosy", 0));
  EXPECT_TRUE(group.valid());
  EXPECT_EQ(graph.choice_group(chain.op("choosy", 1)), group);
  EXPECT_EQ(graph.choice_group(chain.op("choosy", 2)), group);
  EXPECT_TRUE(graph.choice_group(chain.op("choosy", 3)).valid());
  EXPECT_NE(graph.choice_group(chain.op("choosy", 3)), group);
  EXPECT_EQ(*read_regen_graph(*write_regen_graph(graph), "graph"), graph);
}

// All ways take as long as each other here.
RepeatableCall choosy_call(std::int64_t kind) {
  RepeatableCall call;
  call.run = [kind, x = at::ones({100})] {
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow("regen_test::choosy", "");
    torch::jit::Stack stack{x, x, kind, c10::List<bool>({true})};
    handle.callBoxed(stack);
    return std::vector<at::Tensor>{stack[0].toTensor()};
  };
  call.describe = [](const std::vector<at::Tensor>&,
                     const std::vector<RecordedAllocation>& observed, CallRecord& record) {
    for (const RecordedAllocation& a : observed) {
      const bool freed = a.death != RecordedAllocation::kAlive;
      record.allocations.push_back(
          {a.bytes, a.birth, freed ? std::int64_t{a.death} : CallAllocation::kForever});
    }
  };
  call.time = [] { return 1.0; };
  return call;
}

TEST(AlgorithmSearch, GivenCapsAreFollowedOrNotAtAll) {
  const auto device = make_cpu_device();
  const std::vector<Bytes> caps{3 * kMiB, 2 * kMiB, 5};
  const CallRecord followed = *search_algorithms(choosy_call(0), *device, {}, &caps);
  ASSERT_EQ(followed.alternatives->size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ((*followed.alternatives)[i].cap, caps[i]);
  EXPECT_EQ(scratch_bytes((*followed.alternatives)[0].allocations), 2 * kMiB);
  EXPECT_EQ(scratch_bytes((*followed.alternatives)[1].allocations), 2 * kMiB);
  EXPECT_EQ(scratch_bytes((*followed.alternatives)[2].allocations), 0);
  // This one has no answer to the last cap, so the search is its own.
  const CallRecord own = *search_algorithms(choosy_call(3), *device, {}, &caps);
  ASSERT_EQ(own.alternatives->size(), 1u);
  EXPECT_EQ((*own.alternatives)[0].cap, kMiB - 1);
}

TEST(AlgorithmSearch, TheCacheKeepsAlternatives) {
  const std::string path = ::testing::TempDir() + "regen_alternatives.json";
  std::filesystem::remove(path);
  RecordCache cache;
  Chain chain(choosy_chain(3), Algorithms::kAny, {}, &cache);
  ASSERT_TRUE(cache.save(path, "here").ok());
  RecordCache loaded = *RecordCache::load(path, "here");
  Chain again(choosy_chain(3), Algorithms::kAny, {}, &loaded);
  EXPECT_FALSE(loaded.changed());
  EXPECT_EQ(again.graph(), chain.graph());
  again.record_again(Algorithms::kDefault, &loaded);
  EXPECT_FALSE(loaded.changed());
  for (OpId op : again.graph().ops()) {
    EXPECT_EQ(search::plain_alternatives(again.graph(), op).size(), 1u);
  }
  const std::vector<at::Tensor> direct = again.run_directly();
  EXPECT_TRUE(same_bits(again.run(*again.solve("keep_all").plan), direct));
  EXPECT_TRUE(again.deviations.empty());
}

TEST(AlgorithmSearch, WhatWasMeasuredWithoutAlternativesIsMeasuredAgain) {
  RecordCache cache;
  Chain chain(choosy_chain(3), Algorithms::kDefault, {}, &cache);
  chain.record_again(Algorithms::kAny, &cache);
  EXPECT_EQ(chain.graph().variants(chain.op("choosy")).size(), 3u);
}

TEST(Problem, OfAConvolutionIsWithoutBiasAndWantedGradients) {
  ProgramMaker maker("convolutions");
  const ValueId x = maker.bring("x", Role::kInput, {2, 3, 8, 8});
  const ValueId w = maker.bring("w", Role::kParameter, {4, 3, 3, 3});
  const ValueId b = maker.bring("b", Role::kParameter, {4});
  const ValueId g = maker.bring("g", Role::kInput, {2, 4, 8, 8});
  const auto list = [](std::int64_t value) { return Json::array({value, value}); };
  const auto forward = [&](const Json& bias, std::int64_t stride) {
    maker.call("aten::convolution",
               {ref(x), ref(w), bias, list(stride), list(1), list(1), false, list(0), 1});
  };
  const auto backward = [&](const Json& bias, const Json& mask) {
    maker.call("aten::convolution_backward",
               {ref(g), ref(x), ref(w), bias, list(1), list(1), list(1), false, list(0), 1, mask});
  };
  forward(nullptr, 1);
  forward(ref(b), 1);
  forward(nullptr, 2);
  backward(nullptr, Json::array({true, true, false}));
  backward(Json::array({4}), Json::array({false, true, true}));
  const Program& program = maker.program();
  std::vector<std::string> problems;
  std::set<std::string> keys;
  for (const Node& node : program.nodes) {
    problems.push_back(CallArguments(program, node).problem());
    keys.insert(CallArguments(program, node).key());
  }
  EXPECT_EQ(keys.size(), 5u);
  EXPECT_EQ(problems[0], problems[1]);
  EXPECT_NE(problems[0], problems[2]);
  EXPECT_EQ(problems[3], problems[4]);
  EXPECT_NE(problems[0], problems[3]);
}

// Six tensors of 64 KiB are far from the 4 MiB that the fast way takes.
constexpr Bytes kTight = 2 * kMiB;

TEST(AlgorithmChoice, ABudgetThatTheDefaultCannotMeetIsKept) {
  Chain plain(choosy_chain(3), Algorithms::kDefault);
  EXPECT_EQ(plain.solve("auto", kTight).status, search::PlanStatus::kInfeasible);
  const std::vector<at::Tensor> by_default = plain.run_directly();

  Chain chain(choosy_chain(3));
  const search::Outcome outcome = chain.solve("auto", kTight);
  ASSERT_TRUE(outcome.plan) << outcome.note;
  EXPECT_LE(outcome.simulation.peak_bytes, kTight);
  EXPECT_EQ(choice_of(outcome, chain.op("choosy", 0)), 2u);
  EXPECT_EQ(choice_of(outcome, chain.op("choosy", 1)), 2u);
  EXPECT_EQ(choice_of(outcome, chain.op("choosy", 2)), 1u);  // its only other way

  ASSERT_TRUE(install_memory_meter().ok());
  const Bytes brought = memory_use(c10::kCPU)->allocated;
  ASSERT_TRUE(reset_memory_peak(c10::kCPU).ok());
  const std::vector<at::Tensor> planned = chain.run(*outcome.plan);
  const Bytes peak = memory_use(c10::kCPU)->allocated_peak;
  EXPECT_LE(peak - brought, outcome.simulation.peak_bytes - chain.graph().fixed_bytes() + kReserve +
                                8 * (64 << 10));  // the results as they are handed out
  EXPECT_TRUE(chain.deviations.empty());
  EXPECT_FALSE(same_bits(planned, by_default));
  // The bare operators remember on this thread what the plan has chosen.
  EXPECT_TRUE(same_bits(planned, chain.run_directly()));
}

TEST(AlgorithmChoice, EachStepTakesItsOwnWhateverWasChosenBefore) {
  Chain chain(choosy_chain(3));
  forget_choosy();
  const std::vector<at::Tensor> by_default = chain.run_directly();
  const Plan small = *chain.solve("auto", kTight).plan;
  const Plan large = *chain.solve("keep_all").plan;
  const std::vector<at::Tensor> by_choice = chain.run(small);
  EXPECT_FALSE(same_bits(by_choice, by_default));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(same_bits(chain.run(large), by_default));
    EXPECT_TRUE(chain.deviations.empty());
    EXPECT_TRUE(same_bits(chain.run(small), by_choice));
    EXPECT_TRUE(chain.deviations.empty());
  }
}

// A step that was recorded without alternatives has nothing to refuse: it gets a new thread.
TEST(AlgorithmChoice, AStepOfDefaultsIsNotTouchedByChoicesOfOthers) {
  Chain chain(choosy_chain(3), Algorithms::kAny, {.run_on_worker = true});
  const std::vector<at::Tensor> by_default = chain.run_directly();
  EXPECT_FALSE(same_bits(chain.run(*chain.solve("auto", kTight).plan), by_default));
  chain.record_again(Algorithms::kDefault);
  const search::Outcome keep = chain.solve("keep_all");
  EXPECT_TRUE(same_bits(chain.run(*keep.plan), by_default));
  EXPECT_TRUE(chain.deviations.empty());
}

TEST(AlgorithmChoice, TheLeastBudgetCountsTheSmallestWays) {
  Chain chain(choosy_chain(3));
  const search::Outcome least =
      *search::least_budget("checkmate", {.graph = &chain.graph()},
                            {.alignment = chain.device().alignment()}, {.work = 300'000});
  ASSERT_TRUE(least.plan);
  EXPECT_LT(least.simulation.peak_bytes, kTight);
  chain.run(*least.plan);
  EXPECT_TRUE(chain.deviations.empty());
}

TEST(AlgorithmChoice, APlanThatSplitsAGroupIsRefused) {
  Chain chain(choosy_chain(3));
  Plan plan = *chain.solve("auto", kTight).plan;
  for (Step& step : plan.steps) {
    if (step.kind() == StepKind::kCompute && step.op() == chain.op("choosy", 1)) {
      step = Step::compute(step.op(), 1);
    }
  }
  const auto compiled = chain.compile(plan);
  ASSERT_FALSE(compiled.ok());
  EXPECT_THAT(compiled.error().message,
              HasSubstr("runs in variant 1 of choice group 0, expected variant 2 as for op"));
}

// The operator has other algorithms now than when it was recorded.
TEST(AlgorithmChoice, AnOperatorThatNeverComesToThePlannedOneIsReported) {
  RecordCache cache;
  Chain measured(choosy_chain(2, 0), Algorithms::kAny, {}, &cache);
  const std::string path = ::testing::TempDir() + "regen_changed_alternatives.json";
  std::filesystem::remove(path);
  ASSERT_TRUE(cache.save(path, "here").ok());
  std::string text = *read_file(path);
  const std::string size = "[" + std::to_string(2 * kMiB) + ",";
  ASSERT_NE(text.find(size), std::string::npos);
  for (std::size_t at = 0; (at = text.find(size, at)) != std::string::npos;) {
    text.replace(at, size.size(), "[" + std::to_string(2 * kMiB + 64) + ",");
  }
  ASSERT_TRUE(write_file(path, text).ok());
  RecordCache changed = *RecordCache::load(path, "here");
  Chain chain(choosy_chain(2, 0), Algorithms::kAny, {}, &changed);
  const search::Outcome outcome = chain.solve("auto", 3 * kMiB);
  ASSERT_EQ(choice_of(outcome, chain.op("choosy")), 1u);
  chain.run(*outcome.plan);
  EXPECT_FALSE(chain.deviations.empty());
}

}  // namespace
}  // namespace regen::execute
