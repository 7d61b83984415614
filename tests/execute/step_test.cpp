// Hand-written steps from recording to results: under every plan the same bits as the bare
// operators give.
#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "regen/base/file.h"
#include "regen/base/json.h"
#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/execute/program/program_data.h"
#include "regen/execute/record/link.h"
#include "regen/execute/run/direct_step.h"
#include "regen/execute/run/executor.h"
#include "regen/graph/analysis.h"
#include "regen/search/services/addressed_plan.h"
#include "regen/search/services/least_budget.h"
#include "small_program.h"
#include "step_fixture.h"

namespace regen::execute {
namespace {

using ::testing::HasSubstr;

class Fixture : public StepFixture {
 public:
  explicit Fixture(const ChainOptions& options, const CpuDeviceOptions& device = {})
      : StepFixture(make_chain(options), device) {}
};

// Of a file that no earlier run has left.
std::string fresh_path(const std::string& name) {
  std::string path = ::testing::TempDir() + name;
  std::filesystem::remove(path);
  return path;
}

CallRecord call_taking(double seconds) {
  CallRecord record;
  record.seconds = seconds;
  record.overwritable.emplace();
  return record;
}

std::size_t runs_of(const Plan& plan, const Graph& graph, std::string_view type) {
  std::size_t runs = 0;
  for (const Step& step : plan.steps) {
    if (step.kind() == StepKind::kCompute && graph.type(step.op()) == type) ++runs;
  }
  return runs;
}

TEST(DirectStep, GivesWhatTheOperatorsGive) {
  Fixture fixture({.layers = 1});
  const auto left = fixture.run_directly(1);
  const auto typed = [&](std::size_t storage) {
    return at::from_blob(fixture.data().tensor(StorageId(storage)).mutable_data_ptr(),
                         {storage == 0 ? 192 : 48, 48});
  };
  const at::Tensor x = typed(0);
  const at::Tensor h = at::relu(at::mm(x, typed(1)));
  EXPECT_TRUE(left[0].equal(h.sum()));
  EXPECT_TRUE(left[1].equal(at::mm(x.t(), h.gt(0).to(at::kFloat))));
}

// --- recording and graph

TEST(Record, CountsOutputsAndWorkspace) {
  const Fixture fixture({.layers = 2, .dropout = true});
  const Recording& recording = fixture.recording();
  const Program& program = recording.program;
  for (std::size_t n = 0; n < program.nodes.size(); ++n) {
    const NodeRecord& record = recording.nodes[NodeId(n)];
    const bool view = program.nodes[NodeId(n)].op == "aten::t";
    EXPECT_EQ(record.computes, !view) << describe(program, NodeId(n));
    EXPECT_EQ(record.seconds > 0, !view) << describe(program, NodeId(n));
  }
  const Node& mm = program.nodes[NodeId(0)];
  EXPECT_EQ(program.values[mm.outputs[0]].sizes, (std::vector<std::int64_t>{192, 48}));
  EXPECT_EQ(program.storages[program.values[mm.outputs[0]].storage].bytes, 192 * 48 * 4);
  const Node& dropout = program.nodes[NodeId(1)];
  EXPECT_EQ(program.values[dropout.outputs[1]].dtype, c10::ScalarType::Bool);
}

TEST(Record, TheCacheGivesTheSameRecording) {
  Fixture fixture({.layers = 2, .batch_norm = true});
  RecordCache cache;
  const auto first = record(fixture.program(), *fixture.device(), {.repeats = 1, .cache = &cache});
  ASSERT_TRUE(first.ok());
  const std::string path = fresh_path("regen_record_cache.json");
  ASSERT_TRUE(cache.save(path, "this one").ok());
  auto loaded = RecordCache::load(path, "this one");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->size(), cache.size());
  const auto second =
      record(fixture.program(), *fixture.device(), {.repeats = 1, .cache = &*loaded});
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(loaded->changed());
  EXPECT_EQ(first->program, second->program);
  for (std::size_t n = 0; n < first->nodes.size(); ++n) {
    EXPECT_EQ(first->nodes[NodeId(n)].seconds, second->nodes[NodeId(n)].seconds);
    EXPECT_EQ(first->nodes[NodeId(n)].workspace, second->nodes[NodeId(n)].workspace);
  }
  const auto other = RecordCache::load(path, "another one");
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("another one"));
}

TEST(RecordCache, TheSecondWriterKeepsWhatTheFirstHasWritten) {
  const std::string path = fresh_path("regen_two_writers.json");
  RecordCache first = *RecordCache::load(path, "here");
  RecordCache second = *RecordCache::load(path, "here");
  first.insert("both", call_taking(1));
  first.insert("first", call_taking(2));
  second.insert("both", call_taking(3));
  second.insert("second", call_taking(4));
  EXPECT_FALSE(*first.save(path, "here"));
  EXPECT_TRUE(*second.save(path, "here"));  // its "both" is the first's now
  for (const RecordCache& cache : {*RecordCache::load(path, "here"), second}) {
    EXPECT_FALSE(cache.changed());
    ASSERT_EQ(cache.size(), 3U);
    EXPECT_EQ(*cache.find("both"), call_taking(1));
    EXPECT_EQ(*cache.find("first"), call_taking(2));
    EXPECT_EQ(*cache.find("second"), call_taking(4));
  }
  EXPECT_FALSE(*first.save(path, "here"));
  EXPECT_EQ(first.size(), 3U);
  EXPECT_FALSE(first.save(path, "elsewhere").ok());
}

TEST(RecordCache, OnlyWhatWasLookedForMoreReplacesWhatIsThere) {
  const std::string path = fresh_path("regen_more_and_less.json");
  CallRecord more = call_taking(2);
  more.alternatives.emplace();
  for (const CallRecord& record : {call_taking(1), more, call_taking(3)}) {
    RecordCache cache;
    cache.insert("call", record);
    ASSERT_TRUE(cache.save(path, "here").ok());
  }
  EXPECT_EQ(*RecordCache::load(path, "here")->find("call"), more);
}

TEST(RecordCache, NobodyWhoWritesAtTheSameTimeIsLost) {
  constexpr int kWriters = 4;
  constexpr int kTimes = 10;
  const std::string path = fresh_path("regen_many_writers.json");
  std::vector<RecordCache> caches(kWriters);
  std::vector<std::thread> writers;
  writers.reserve(kWriters);
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < kTimes; ++i) {
        caches[w].insert("own " + std::to_string(w) + " " + std::to_string(i), call_taking(1));
        if (i == 0) caches[w].insert("all", call_taking(2 + w));
        EXPECT_TRUE(caches[w].save(path, "here").ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const RecordCache file = *RecordCache::load(path, "here");
  EXPECT_EQ(file.size(), 1U + kWriters * kTimes);
  for (const RecordCache& cache : caches) EXPECT_EQ(*cache.find("all"), *file.find("all"));
}

// Another process writes while this one measures, which asks for contents then: its times, here 7 s
// for every call, are those of this recording too.
TEST(Record, TimesThatAnotherWroteMeanwhileAreTaken) {
  Fixture fixture({.layers = 2, .batch_norm = true});
  const std::string& device = fixture.device()->name();
  const std::string path = fresh_path("regen_meanwhile.json");
  const std::string theirs = fresh_path("regen_meanwhile_theirs.json");
  ASSERT_TRUE(record_with_file(fixture.program(), *fixture.device(), {.repeats = 1}, theirs).ok());
  Json document = *parse_json(*read_file(theirs), theirs);
  for (Json& call : document["calls"]) call["seconds"] = 7.0;
  RecordOptions options{.repeats = 1};
  options.sample = [&](StorageId) {
    EXPECT_TRUE(write_file(path, document.dump()).ok());
    return at::Tensor();
  };
  const auto mine = record_with_file(fixture.program(), *fixture.device(), options, path);
  ASSERT_TRUE(mine.ok()) << mine.error().message;
  for (const NodeRecord& node : mine->nodes) {
    EXPECT_EQ(node.seconds, node.computes ? 7.0 : 0.0);
  }
  EXPECT_EQ(RecordCache::load(path, device)->size(), document["calls"].size());
}

TEST(Record, UnknownOperatorsAndBadCallsNameTheNode) {
  Fixture fixture({.layers = 1});
  Program program = fixture.program();
  program.nodes[NodeId(0)].op = "aten::no_such_thing";
  const auto unknown = record(program, *fixture.device());
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("aten::no_such_thing"));

  program = fixture.program();
  program.nodes[NodeId(0)].args.pop_back();
  const auto few = record(program, *fixture.device());
  ASSERT_FALSE(few.ok());
  EXPECT_THAT(few.error().message, HasSubstr("node 0 aten::mm"));

  program = fixture.program();
  program.values[ValueId(0)].sizes = {24, 96};
  program.values[ValueId(0)].strides = {96, 1};
  const auto shapes = record(program, *fixture.device());
  ASSERT_FALSE(shapes.ok());
  EXPECT_THAT(shapes.error().message, HasSubstr("node 0 aten::mm"));
}

// The cache of calls took such an argument for a reference to value 0 (or for none at all).
TEST(Record, AnArgumentNamedValueIsNoReference) {
  ProgramMaker maker("adam");
  maker.program().scalars.push_back({"step size", -0.5});
  const ValueId x = maker.bring("x", Role::kParameter, {8});
  const ValueId y = maker.bring("y", Role::kInput, {8});
  maker.call("aten::addcmul_", {ref(x), ref(y), ref(y)}, {false}, {{"value", {{"scalar", 0}}}});
  maker.call("aten::addcmul_", {ref(x), ref(y), ref(y)}, {false}, {{"value", 3}});
  const auto device = make_cpu_device();
  RecordCache cache;
  const auto recorded = record(maker.program(), *device, {.repeats = 1, .cache = &cache});
  ASSERT_TRUE(recorded.ok()) << recorded.error().message;
  EXPECT_EQ(cache.size(), 2U);
}

// Reports show where an op comes from; a plan does not depend on it.
TEST(StepGraph, OpsSayTheirModuleAndLine) {
  Program program = make_chain({.layers = 2});
  const std::uint64_t plain = StepFixture(program).graph().fingerprint();
  program.nodes[NodeId(0)].module = "layers.0";
  program.nodes[NodeId(0)].source = "model.py:31";
  StepFixture fixture(program);
  const Graph& graph = fixture.graph();
  EXPECT_EQ(fixture.step().nodes[OpId(0)], NodeId(0));
  EXPECT_EQ(graph.attributes(OpId(0)), R"({"module":"layers.0","source":"model.py:31"})");
  EXPECT_EQ(graph.attributes(OpId(1)), "");
  EXPECT_EQ(graph.fingerprint(), plain);
}

TEST(StepGraph, HasOneOpForEachNodeThatComputes) {
  const Fixture fixture({.layers = 3, .dropout = true, .boundary = true});
  const StepGraph& step = fixture.step();
  ASSERT_TRUE(step.boundary.valid());
  std::size_t computing = 0;
  for (const NodeRecord& record : fixture.recording().nodes) computing += record.computes;
  EXPECT_EQ(step.graph.num_ops(), computing + 1);
  for (const OpId op : step.graph.ops()) {
    if (op == step.boundary) continue;
    const Node& node = fixture.recording().program.nodes[step.nodes[op]];
    EXPECT_EQ(step.graph.name(op), node.name);
    EXPECT_EQ(step.graph.random(op), node.random);
  }
  for (const TensorId t : step.graph.tensors()) EXPECT_EQ(step.graph.bytes(t) % 64, 0);
}

TEST(StepGraph, RuntimeBytesAndAttributesArePartOfIt) {
  const Fixture fixture({.layers = 1});
  const auto with = make_step_graph(fixture.recording(), {64, 1000, R"({"device":"d"})"});
  ASSERT_TRUE(with.ok());
  EXPECT_EQ(with->graph.fixed_bytes(), fixture.graph().fixed_bytes() + 1000);
  EXPECT_EQ(with->graph.attributes(), R"({"device":"d"})");
}

// --- plans give the same bits

struct PlanCase {
  const char* name;
  ChainOptions options;
};

void PrintTo(const PlanCase& one, std::ostream* out) {
  *out << one.name;
}

class EveryPlan : public ::testing::TestWithParam<PlanCase> {};

TEST_P(EveryPlan, KeepingEverythingEqualsDirectCalls) {
  Fixture fixture(GetParam().options);
  expect_same_bits(fixture.run(*fixture.solve("keep_all").plan), fixture.run_directly());
}

TEST_P(EveryPlan, RecomputingEqualsDirectCalls) {
  Fixture fixture(GetParam().options);
  const search::Outcome outcome = fixture.tightest("checkmate");
  EXPECT_GT(outcome.simulation.recomputed, 0U);
  EXPECT_LT(outcome.simulation.peak_bytes, live_bytes_keep_all(fixture.graph()).peak_bytes);
  expect_same_bits(fixture.run(*outcome.plan), fixture.run_directly());
}

TEST_P(EveryPlan, MovingEqualsDirectCalls) {
  Fixture fixture(GetParam().options);
  const search::Outcome outcome = fixture.tightest("vdnn");
  EXPECT_GT(outcome.simulation.offloaded_bytes, 0);
  expect_same_bits(fixture.run(*outcome.plan), fixture.run_directly());
}

TEST_P(EveryPlan, SlowCopiesChangeNothing) {
  Fixture fixture(GetParam().options, {.copy_bytes_per_second = 2e7});
  const search::Outcome outcome = fixture.tightest("vdnn");
  expect_same_bits(fixture.run(*outcome.plan, 1), fixture.run_directly(1));
}

INSTANTIATE_TEST_SUITE_P(All, EveryPlan,
                         ::testing::ValuesIn(std::vector<PlanCase>{
                             {"Plain", {.layers = 6}},
                             {"Dropout", {.layers = 6, .dropout = true}},
                             {"BatchNorm", {.layers = 6, .batch_norm = true}},
                             {"Boundary", {.layers = 6, .boundary = true}},
                             {"BoundaryDropoutNorm",
                              {.layers = 5, .dropout = true, .batch_norm = true, .boundary = true}},
                             {"Update", {.layers = 6, .dropout = true, .update = true}},
                         }),
                         [](const auto& one) { return one.param.name; });

// Every relu reads the sum before it for the last time, and most gradients are read once.
TEST(Executor, WhatIsReadForTheLastTimeIsOverwritten) {
  Fixture fixture({.layers = 4});
  const search::Outcome kept = fixture.solve("keep_all");
  const auto in_place = std::ranges::count_if(kept.plan->steps, [&](const Step& step) {
    return step.kind() == StepKind::kCompute &&
           fixture.graph().overwrites(step.variant(fixture.graph())).valid();
  });
  EXPECT_GE(in_place, 4);
  expect_same_bits(fixture.run(*kept.plan), fixture.run_directly());
}

TEST(Executor, RefusesToRunOverMemoryThatWasNeverGiven) {
  Fixture fixture({.layers = 2});
  auto executor = fixture.compile(*fixture.solve("keep_all").plan);
  ASSERT_TRUE(executor.ok());
  const Status status = (*executor)->run(0);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("has no memory, expected it to be bound"));
  ASSERT_TRUE(bind(**executor, fixture.data()).ok());
  EXPECT_TRUE((*executor)->run(0).ok());
}

TEST(Executor, StatisticsAreUpdatedOnceThoughTheNormRunsTwice) {
  Fixture fixture({.layers = 6, .batch_norm = true});
  const search::Outcome outcome = fixture.tightest("checkmate");
  const std::string_view norm = "_native_batch_norm_legit_functional";
  ASSERT_GT(runs_of(*outcome.plan, fixture.graph(), norm), 6U);
  EXPECT_EQ(runs_of(*outcome.plan, fixture.graph(), "copy_"), 12U);
  const auto statistics = [&] {
    std::vector<at::Tensor> tensors;
    for (std::size_t s = 0; s < fixture.data().size(); ++s) {
      if (fixture.program().storages[StorageId(s)].role != Role::kBuffer) continue;
      tensors.push_back(fixture.data().tensor(StorageId(s)).clone());
    }
    return tensors;
  };
  fixture.run(*outcome.plan, 1);
  const auto planned = statistics();
  fixture.run_directly(1);
  expect_same_bits(planned, statistics());
}

TEST(Executor, DropoutDrawsTheSameNumbersAgain) {
  Fixture fixture({.layers = 6, .dropout = true});
  const search::Outcome outcome = fixture.tightest("checkmate");
  ASSERT_GT(runs_of(*outcome.plan, fixture.graph(), "native_dropout"), 6U);
  expect_same_bits(fixture.run(*outcome.plan, 3), fixture.run_directly(3));
}

// --- memory

TEST(Executor, TheMeterSeesNoMoreThanWasPredicted) {
  ASSERT_TRUE(install_memory_meter().ok());
  {
    Fixture fixture({.layers = 6, .boundary = true});
    for (const std::string planner : {"keep_all", "checkmate", "vdnn"}) {
      const search::Outcome outcome =
          planner == "keep_all" ? fixture.solve(planner) : fixture.tightest(planner);
      auto executor = fixture.compile(*outcome.plan);
      ASSERT_TRUE(executor.ok());
      ASSERT_TRUE(bind(**executor, fixture.data()).ok());
      ASSERT_TRUE(reset_memory_peak(c10::kCPU).ok());
      for (std::size_t part = 0; part < 2; ++part) ASSERT_TRUE((*executor)->run(part).ok());
      const Bytes measured = memory_use(c10::kCPU)->allocated_peak;
      const Bytes allowed = outcome.simulation.peak_bytes + (1 << 14);  // the reserve
      EXPECT_LE(measured, allowed) << planner;
      EXPECT_GE(measured, allowed - allowed / 20) << planner;
    }
  }
  ASSERT_TRUE(remove_memory_meter().ok());
}

// --- what is refused

TEST(Executor, PlansWithoutAddressesAreRefused) {
  Fixture fixture({.layers = 2});
  Plan plan = *fixture.solve("keep_all").plan;
  plan.addresses.reset();
  const auto compiled = fixture.compile(plan);
  ASSERT_FALSE(compiled.ok());
  EXPECT_THAT(compiled.error().message, HasSubstr("no addresses"));
}

TEST(Executor, MisalignedAddressesAreRefused) {
  Fixture fixture({.layers = 2});
  Plan plan = *fixture.solve("keep_all").plan;
  plan.addresses->back() += 8;
  const auto compiled = fixture.compile(plan);
  ASSERT_FALSE(compiled.ok());
  EXPECT_THAT(compiled.error().message, HasSubstr("multiple of 64"));
}

TEST(Executor, PlansForAnotherGraphAreRefused) {
  Fixture small({.layers = 2});
  Fixture large({.layers = 3});
  const auto compiled = large.compile(*small.solve("keep_all").plan);
  ASSERT_FALSE(compiled.ok());
  EXPECT_THAT(compiled.error().message, HasSubstr("another graph"));
}

TEST(Executor, OverlappingAddressesAreRefused) {
  Fixture fixture({.layers = 3});
  Plan plan = *fixture.solve("keep_all").plan;
  std::fill(plan.addresses->begin(), plan.addresses->end(), 0);
  EXPECT_FALSE(fixture.compile(plan).ok());
}

TEST(Executor, TensorsThatAreTooSmallAreRefused) {
  Fixture fixture({.layers = 1});
  auto executor = fixture.compile(*fixture.solve("keep_all").plan);
  ASSERT_TRUE(executor.ok());
  const Status status = (*executor)->bind(StorageId(1), at::zeros({10}));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("layer0.weight"));
  EXPECT_FALSE((*executor)->run(3).ok());
}

TEST(Executor, AStepAfterAFailedOneWorks) {
  Fixture fixture({.layers = 2, .boundary = true});
  auto executor = fixture.compile(*fixture.solve("keep_all").plan);
  ASSERT_TRUE(executor.ok());
  ASSERT_TRUE(bind(**executor, fixture.data()).ok());
  EXPECT_FALSE((*executor)->run(1).ok()) << "the second part without the first";
  EXPECT_TRUE((*executor)->run(0).ok());
  EXPECT_TRUE((*executor)->run(1).ok());
}

// --- times

TEST(Executor, TheTraceHasComputesAndCopies) {
  Fixture fixture({.layers = 6});
  const search::Outcome outcome = fixture.tightest("vdnn");
  auto executor = fixture.compile(*outcome.plan);
  ASSERT_TRUE(executor.ok());
  ASSERT_TRUE(bind(**executor, fixture.data()).ok());
  (*executor)->set_trace(true);
  ASSERT_TRUE((*executor)->run(0).ok());
  const std::vector<StepTime> times = (*executor)->take_trace();
  std::size_t expected = 0;
  for (const Step& step : outcome.plan->steps) expected += step.kind() != StepKind::kRelease;
  EXPECT_EQ(times.size(), expected);
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_GE(times[i].begin, 0);
    EXPECT_GE(times[i].end, times[i].begin);
    if (i == 0) continue;
    EXPECT_GT(times[i].step, times[i - 1].step);
  }
  EXPECT_TRUE((*executor)->take_trace().empty());
}

TEST(Executor, HostTimeIsTheLoopsAndTheCalls) {
  Fixture fixture({.layers = 4});
  auto executor = fixture.compile(*fixture.solve("keep_all").plan);
  ASSERT_TRUE(executor.ok());
  ASSERT_TRUE(bind(**executor, fixture.data()).ok());
  ASSERT_TRUE((*executor)->run(0).ok());
  EXPECT_EQ((*executor)->take_host_time().calls, 0U);
  (*executor)->set_host_timing(true);
  ASSERT_TRUE((*executor)->run(0).ok());
  const HostTime time = (*executor)->take_host_time();
  EXPECT_EQ(time.calls, fixture.graph().num_ops());
  EXPECT_GT(time.call_seconds, 0);
  EXPECT_GT(time.seconds, time.call_seconds);
}

TEST(Link, IsMeasuredBetweenItsBounds) {
  const auto device = make_cpu_device({.copy_bytes_per_second = 1e8});
  const auto link = measure_link(*device, {.bytes = 1 << 20, .repeats = 3});
  ASSERT_TRUE(link.ok()) << link.error().message;
  EXPECT_GT(link->to_host, 2e7);
  EXPECT_LE(link->to_host, 1.02e8);
  EXPECT_LE(link->to_device, 1.02e8);
  EXPECT_GE(link->both, std::max(link->to_host, link->to_device));
  EXPECT_LE(link->both, link->to_host + link->to_device);
  EXPECT_FALSE(measure_link(*device, {.bytes = 0}).ok());
}

}  // namespace
}  // namespace regen::execute
