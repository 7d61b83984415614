// Results in the place of what a call reads last: found by trial, planned, and run with the same
// bits.
#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <filesystem>

#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/placement/uninitialized_memory.h"
#include "regen/execute/program/overwriting.h"
#include "regen/execute/program/program_values.h"
#include "regen/execute/program/step_graph.h"
#include "regen/execute/record/record.h"
#include "small_program.h"

namespace regen::execute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Says that it treats each element by itself, and does not: the first is read for the last.
at::Tensor turned(const at::Tensor& x) {
  at::Tensor out = at::empty_like(x);
  const float* from = x.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = from[x.numel() - 1 - i];
  return out;
}

// Clears its result before it reads.
at::Tensor cleared(const at::Tensor& mask, const at::Tensor& x) {
  at::Tensor out = at::empty_like(x);
  float* to = out.mutable_data_ptr<float>();
  const float* from = x.const_data_ptr<float>();
  const bool* chosen = mask.const_data_ptr<bool>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    to[i] = 0;
    if (chosen[i]) to[i] = from[i];
  }
  return out;
}

TORCH_LIBRARY_FRAGMENT(regen_test, library) {
  library.def("turned(Tensor x) -> Tensor", {at::Tag::pointwise});
  library.def("cleared(Tensor mask, Tensor x) -> Tensor", {at::Tag::pointwise});
}
TORCH_LIBRARY_IMPL(regen_test, CPU, library) {
  library.impl("turned", turned);
  library.impl("cleared", cleared);
}

class Recorded {
 public:
  explicit Recorded(const Program& program, RecordCache* cache = nullptr)
      : device_(make_cpu_device({})),
        recording_(*record(program, *device_, {.repeats = 1, .cache = cache})),
        step_(*make_step_graph(recording_, {.alignment = device_->alignment()})) {}

  // Names of what the node of that op may have its first result in place of.
  std::vector<std::string> overwritable(const std::string& op) const {
    std::vector<std::string> names;
    for (const StorageId s : recording_.nodes[node(op)].overwritable) {
      names.push_back(recording_.program.storages[s].name);
    }
    return names;
  }
  // How many variants of that op overwrite something.
  std::ptrdiff_t overwriting_variants(const std::string& op) const {
    for (const OpId id : step_.graph.ops()) {
      if (step_.nodes[id] != node(op)) continue;
      return std::ranges::count_if(step_.graph.variants(id),
                                   [&](VariantId v) { return step_.graph.overwrites(v).valid(); });
    }
    return -1;
  }

 private:
  NodeId node(const std::string& op) const {
    for (std::size_t n = 0; n < recording_.program.nodes.size(); ++n) {
      if (recording_.program.nodes[NodeId(n)].op == op) return NodeId(n);
    }
    return {};
  }

  std::shared_ptr<CpuDevice> device_;
  Recording recording_;
  StepGraph step_;
};

Program one_call(const std::string& op, std::vector<Json> more = {},
                 std::vector<std::int64_t> sizes = {8, 16}) {
  ProgramMaker maker("one");
  const ValueId x = maker.bring("x", Role::kInput, std::move(sizes));
  const ValueId y = maker.call1("aten::exp", {ref(x)});
  std::vector<Json> args{ref(y)};
  args.insert(args.end(), more.begin(), more.end());
  maker.result(maker.call1(op, args), ResultKind::kOutput, "out");
  return std::move(maker.program());
}

TEST(Overwriting, ElementwiseResultsMayTakeThePlaceOfWhatWasComputed) {
  const Recorded step(one_call("aten::relu"));
  EXPECT_THAT(step.overwritable("aten::relu"), ElementsAre("exp0"));
  EXPECT_EQ(step.overwriting_variants("aten::relu"), 1);
}

TEST(Overwriting, WhatTheCallerBringsIsNeverOverwritten) {
  const Recorded step(one_call("aten::relu"));
  EXPECT_EQ(step.overwriting_variants("aten::exp"), 0);
}

TEST(Overwriting, RowsAreAddedUpBeforeAnythingIsWritten) {
  const Recorded step(one_call("aten::_log_softmax", {1, false}, {256, 512}));
  EXPECT_EQ(step.overwriting_variants("aten::_log_softmax"), 1);
}

// A few rows would not show a kernel that adds them up too late.
TEST(Overwriting, RowsAreTriedWhereThereAreManyOfThem) {
  const Recorded step(one_call("aten::_log_softmax", {1, false}));
  EXPECT_EQ(step.overwriting_variants("aten::_log_softmax"), 0);
}

TEST(Overwriting, ATrialFindsWhoReadsWhatItHasWritten) {
  const Recorded step(one_call("regen_test::turned"));
  EXPECT_THAT(step.overwritable("regen_test::turned"), IsEmpty());
}

// Made-up masks are empty, and nothing that they hide would matter.
TEST(Overwriting, ATrialMakesMasksMatter) {
  ProgramMaker maker("masked");
  const ValueId x = maker.bring("x", Role::kInput, {8, 16});
  const ValueId mask = maker.call1("aten::gt.Scalar", {ref(x), 0});
  const ValueId y = maker.call1("aten::exp", {ref(x)});
  maker.result(maker.call1("regen_test::cleared", {ref(mask), ref(y)}), ResultKind::kOutput, "out");
  EXPECT_THAT(Recorded(maker.program()).overwritable("regen_test::cleared"), IsEmpty());
}

// Some kernels ask for memory that PyTorch then fills, if asked to, before they read.
TEST(Overwriting, NothingIsFilledWhileStepsAreRecordedOrRun) {
  at::globalContext().setDeterministicFillUninitializedMemory(true);
  {
    const LeaveUninitialized outer;
    EXPECT_FALSE(at::globalContext().deterministicFillUninitializedMemory());
    { const LeaveUninitialized inner; }
    EXPECT_FALSE(at::globalContext().deterministicFillUninitializedMemory());
  }
  EXPECT_TRUE(at::globalContext().deterministicFillUninitializedMemory());
}

TEST(Overwriting, ProductsAreNotTried) {
  ProgramMaker maker("product");
  const ValueId x = maker.bring("x", Role::kInput, {16, 16});
  const ValueId y = maker.call1("aten::exp", {ref(x)});
  maker.result(maker.call1("aten::mm", {ref(y), ref(x)}), ResultKind::kOutput, "out");
  EXPECT_EQ(Recorded(maker.program()).overwriting_variants("aten::mm"), 0);
}

TEST(Overwriting, EitherOfTwoArgumentsWillDo) {
  ProgramMaker maker("sum");
  const ValueId x = maker.bring("x", Role::kInput, {8, 16});
  const ValueId a = maker.call1("aten::exp", {ref(x)});
  const ValueId b = maker.call1("aten::sin", {ref(x)});
  maker.result(maker.call1("aten::add.Tensor", {ref(a), ref(b)}), ResultKind::kOutput, "out");
  EXPECT_THAT(Recorded(maker.program()).overwritable("aten::add"), ElementsAre("exp0", "sin1"));
}

// Of something smaller that is read many times, or of the same thing twice, nothing can be said.
TEST(Overwriting, OtherLayoutsAndRepeatedArgumentsAreLeftAlone) {
  ProgramMaker maker("layouts");
  const ValueId x = maker.bring("x", Role::kInput, {8, 16});
  const ValueId row = maker.call1("aten::sum.dim_IntList", {ref(x), Json::array({0})});
  const ValueId wide = maker.call1("aten::exp", {ref(x)});
  const ValueId sum = maker.call1("aten::add.Tensor", {ref(wide), ref(row)});
  maker.result(maker.call1("aten::mul.Tensor", {ref(sum), ref(sum)}), ResultKind::kOutput, "out");
  const Recorded step(maker.program());
  EXPECT_THAT(step.overwritable("aten::add"), ElementsAre("exp1"));
  EXPECT_THAT(step.overwritable("aten::mul"), IsEmpty());
}

TEST(Overwriting, TheCacheKnowsIt) {
  RecordCache cache;
  const Recorded first(one_call("aten::relu"), &cache);
  const std::string path = ::testing::TempDir() + "regen_overwriting.json";
  std::filesystem::remove(path);
  ASSERT_TRUE(cache.save(path, "here").ok());
  RecordCache loaded = *RecordCache::load(path, "here");
  const Recorded again(one_call("aten::relu"), &loaded);
  EXPECT_FALSE(loaded.changed());
  EXPECT_EQ(again.overwritable("aten::relu"), first.overwritable("aten::relu"));
}

}  // namespace
}  // namespace regen::execute
