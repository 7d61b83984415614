// Second runs of batch normalisation with the statistics of the first.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <set>
#include <thread>
#include <tuple>

#include "regen/execute/program/call_arguments.h"
#include "step_fixture.h"

namespace regen::execute {
namespace {

struct Shorter {
  bool other_bits = false;
  int calls = 0;
  int with_wrong_statistics = 0;
};
Shorter shorter;

// PyTorch has this one for GPUs only. It checks that it is given what the full run has found.
at::Tensor with_statistics(const at::Tensor& x, const std::optional<at::Tensor>& scale,
                           const std::optional<at::Tensor>& shift, const at::Tensor& mean,
                           const at::Tensor& inverse_deviation, double epsilon) {
  at::Tensor y;
  at::Tensor own_mean;
  at::Tensor own_deviation;
  // On another thread, as its memory is none of the step's.
  std::thread([&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    std::tie(y, own_mean, own_deviation) =
        at::native_batch_norm(x, scale, shift, {}, {}, true, 0, epsilon);
  }).join();
  ++shorter.calls;
  const auto differ = [](const at::Tensor& a, const at::Tensor& b) {
    return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) != 0;
  };
  if (differ(own_mean, mean) || differ(own_deviation, inverse_deviation)) {
    ++shorter.with_wrong_statistics;
  }
  at::Tensor out = at::empty_like(x);
  std::memcpy(out.mutable_data_ptr(), y.const_data_ptr(), y.nbytes());
  if (shorter.other_bits) out.add_(1);
  return out;
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("batch_norm_elemt", with_statistics);
}

class ShorterRuns : public ::testing::Test {
 protected:
  void SetUp() override { shorter = {}; }

  // As if the shorter call had been found to take next to no time.
  static void claim_shorter(const Program& program, RecordCache& cache) {
    for (std::size_t n = 0; n < program.nodes.size(); ++n) {
      if (program.nodes[NodeId(n)].op != "aten::_native_batch_norm_legit_functional") continue;
      const std::string key = CallArguments(program, program.nodes[NodeId(n)]).key();
      CallRecord call = *cache.find(key);
      call.shorter_seconds = 1e-9;
      cache.insert(key, call);
    }
  }
};

OpId first_norm(const Graph& graph) {
  for (OpId op : graph.ops()) {
    if (graph.type(op) == "_native_batch_norm_legit_functional") return op;
  }
  return {};
}

int reruns_of_norms(const Graph& graph, const Plan& plan) {
  std::set<OpId> ran;
  int reruns = 0;
  for (const Step& step : plan.steps) {
    if (step.kind() != StepKind::kCompute) continue;
    if (graph.type(step.op()) != "_native_batch_norm_legit_functional") continue;
    reruns += ran.insert(step.op()).second ? 0 : 1;
  }
  return reruns;
}

TEST_F(ShorterRuns, HaveTheSameBitsUnderTightPlans) {
  RecordCache cache;
  const RecordOptions options{.repeats = 1, .cache = &cache};
  StepFixture step(make_chain({.layers = 5, .batch_norm = true}), {}, options);
  claim_shorter(step.recording().program, cache);
  step.record_again(options);
  const OpId norm = first_norm(step.graph());
  EXPECT_LT(step.graph().rerun_cost(step.graph().default_variant(norm)), 1e-8);
  for (const char* planner : {"checkmate", "vdnn"}) {
    const search::Outcome tight = step.tightest(planner);
    shorter = {};
    expect_same_bits(step.run(*tight.plan), step.run_directly());
    // The plan runs twice; each second run of a norm is the shorter one.
    EXPECT_EQ(shorter.calls, 2 * reruns_of_norms(step.graph(), *tight.plan));
    if (std::string(planner) == "checkmate") {
      EXPECT_GT(shorter.calls, 0);
    }
    EXPECT_EQ(shorter.with_wrong_statistics, 0);
  }
}

TEST_F(ShorterRuns, ReadStatisticsThatStayOutsideThePlannedMemory) {
  RecordCache cache;
  const RecordOptions options{.repeats = 1, .cache = &cache};
  StepFixture step(make_chain({.layers = 2, .width = 48, .batch_norm = true}), {}, options);
  const Bytes before = step.graph().fixed_bytes();
  claim_shorter(step.recording().program, cache);
  step.record_again(options);
  const auto makes = step.graph().outputs(first_norm(step.graph()));
  EXPECT_GT(step.graph().bytes(makes[0]), 0);
  EXPECT_EQ(step.graph().bytes(makes[1]), 0);
  EXPECT_EQ(step.graph().bytes(makes[2]), 0);
  EXPECT_EQ(step.graph().fixed_bytes() - before, step.step().resident_bytes);
  EXPECT_GE(step.step().resident_bytes, 2 * 2 * 48 * 4);
}

TEST_F(ShorterRuns, WithOtherBitsAreNotTaken) {
  shorter.other_bits = true;
  StepFixture step(make_chain({.layers = 2, .width = 512, .batch_norm = true}));
  EXPECT_GT(shorter.calls, 0);
  for (const NodeRecord& node : step.recording().nodes) EXPECT_FALSE(node.shorter_seconds);
}

}  // namespace
}  // namespace regen::execute
