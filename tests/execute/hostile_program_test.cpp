// Programs and profiles of strangers: nothing that they say leads outside the memory of the step, or
// to an operator that does more than compute.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <filesystem>
#include <functional>

#include "regen/base/file.h"
#include "regen/execute/program/permitted_operators.h"
#include "regen/execute/program/program.h"
#include "regen/execute/record/record_cache.h"
#include "step_fixture.h"

namespace regen::execute {
namespace {

using ::testing::HasSubstr;

// --- programs

struct Change {
  const char* name;
  std::function<void(Json&)> make;
  const char* message;
};

void PrintTo(const Change& one, std::ostream* out) {
  *out << one.name;
}

class HostilePrograms : public ::testing::TestWithParam<Change> {};

TEST_P(HostilePrograms, AreRefusedWhereTheyAre) {
  Program program = make_chain({.layers = 2, .dropout = true, .batch_norm = true});
  program.scalars.push_back({"lr", 0.1});
  Json json = Json::parse(write_program(program));
  GetParam().make(json);
  const auto read = read_program(json.dump(), "p.json");
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("p.json"));
  EXPECT_THAT(read.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, HostilePrograms,
    ::testing::ValuesIn(std::vector<Change>{
        {"ASecondKey",
         [](Json& j) {
           j["nodes"][0]["args"][0] = {{"value", 999999}, {"scalar", 0}};
         },
         "2 keys"},
        {"NoKey", [](Json& j) { j["nodes"][0]["args"][0] = Json::object(); }, "0 keys"},
        {"AnUnknownKey",
         [](Json& j) {
           j["nodes"][0]["args"][0] = {{"tensor", 1}};
         },
         "'tensor'"},
        {"AKeyDeepInAList",
         [](Json& j) {
           j["nodes"][0]["args"][0] = {{{{"value", 1}, {"x", 2}}}};
         },
         "nodes[0].args[0]"},
        {"AValueThatIsNoNumber",
         [](Json& j) {
           j["nodes"][0]["args"][0] = {{"value", "1"}};
         },
         "value \"1\""},
        {"AFraction",
         [](Json& j) {
           j["nodes"][0]["args"][0] = {{"value", 0.5}};
         },
         "value 0.5"},
        {"InAnArgumentByName",
         [](Json& j) {
           j["nodes"][0]["kwargs"] = {{"x", {{"value", 999}}}};
         },
         "kwargs.x.value"},
        {"ANumberThatIsNone",
         [](Json& j) {
           j["nodes"][0]["args"][0] = {{"number", "many"}};
         },
         "many"},
        {"ATypeThatIsNone",
         [](Json& j) {
           j["nodes"][0]["args"][0] = {{"dtype", 3}};
         },
         "nodes[0].args[0].dtype"},
        {"ANumberOf64BitsWithoutASign",
         [](Json& j) { j["nodes"][0]["args"][0] = std::uint64_t{1} << 63; }, "64 bits"},
        {"MadeTwice", [](Json& j) { j["nodes"][2]["outputs"] = j["nodes"][0]["outputs"]; },
         "was made before"},
        {"MadeTwiceByOneNode",
         [](Json& j) {
           j["nodes"][1]["outputs"] = {j["nodes"][1]["outputs"][0], j["nodes"][1]["outputs"][0]};
         },
         "was made before"},
        {"ReadBeforeItIsMadeAgain",
         [](Json& j) { j["nodes"][2]["outputs"][0] = j["nodes"][0]["args"][0]["value"]; },
         "was read before"},
        {"ADeviceThatIsNone", [](Json& j) { j["storages"][0]["device"] = "gpu;rm"; }, "gpu;rm"},
        {"ADeviceNumber", [](Json& j) { j["storages"][0]["device"] = "cuda:99999999999"; },
         "cuda:99999999999"},
    }),
    [](const auto& one) { return one.param.name; });

Status permitted(const Program& program, std::vector<std::string> named = {}) {
  return PermittedOperators(std::move(named)).check(program);
}

Program one_call(const std::string& op, std::vector<Json> args,
                 const std::vector<bool>& outputs = {true}) {
  ProgramMaker maker("one");
  maker.bring("x", Role::kInput, {8});
  maker.call(op, std::move(args), outputs);
  return maker.program();
}

TEST(PermittedOperators, AreThoseOfSteps) {
  const Status chain = permitted(make_chain(
      {.layers = 2, .dropout = true, .batch_norm = true, .boundary = true, .update = true}));
  EXPECT_TRUE(chain.ok()) << chain.error().message;
  const Json x{{"value", 0}};
  for (const char* op :
       {"aten::relu", "aten::copy_", "aten::add_.Tensor", "aten::_foreach_add_.List",
        "aten::_fused_adamw_", "aten::native_batch_norm", "aten::t", "aten::zero_",
        "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::convolution_backward",
        "aten::as_strided", "aten::index_put_", "aten::_foreach_addcdiv_.ScalarList",
        "aten::cudnn_batch_norm", "aten::_cudnn_rnn", "aten::embedding_dense_backward"}) {
    const Status status = permitted(one_call(op, {x}));
    EXPECT_TRUE(status.ok()) << op << ": " << status.error().message;
  }
}

TEST(PermittedOperators, AreNoOthersUnlessTheUserNamesThem) {
  const Json x{{"value", 0}};
  for (const char* op :
       {"aten::from_file", "aten::set_.source_Tensor", "aten::resize_", "aten::as_strided_",
        "aten::_resize_output_", "aten::set_data", "aten::relu.out", "aten::t_", "aten::_print",
        "aten::_nested_view_from_buffer", "aten::_sparse_coo_tensor_unsafe", "aten::squeeze_",
        "aten::_cufft_set_plan_cache_max_size", "aten::record_stream", "aten::requires_grad_"}) {
    const Program program = one_call(op, {x});
    const Status status = permitted(program);
    ASSERT_FALSE(status.ok()) << op;
    const std::string name = program.nodes[NodeId(0)].op;
    EXPECT_THAT(status.error().message, HasSubstr("node 0 " + name));
    EXPECT_THAT(status.error().message, HasSubstr("--allow-op " + name));
    EXPECT_TRUE(permitted(program, {name}).ok());
    EXPECT_FALSE(permitted(program, {"aten::nothing"}).ok());
  }
  EXPECT_FALSE(permitted(one_call("regen_test::choosy", {x})).ok());
}

// As inductor's _reinterpret_tensor does: a view without a check of how much memory there is.
at::Tensor reinterpret(const at::Tensor& x, std::int64_t items) {
  at::Tensor view = at::empty({0}, x.options());
  view.unsafeGetTensorImpl()->set_storage_keep_dtype(x.storage());
  view.unsafeGetTensorImpl()->set_sizes_contiguous({items});
  return view;
}

TORCH_LIBRARY_FRAGMENT(regen_test, library) {
  library.def("reinterpret(Tensor(a) x, int items) -> Tensor(a)");
}
TORCH_LIBRARY_IMPL(regen_test, CPU, library) {
  library.impl("reinterpret", reinterpret);
}

TEST(Windows, DoNotReachBeyondTheirMemory) {
  const auto device = make_cpu_device();
  for (const std::int64_t items : {8, 9, 1 << 20}) {
    const auto recorded = record(one_call("regen_test::reinterpret", {{{"value", 0}}, items}),
                                 *device, {.repeats = 1});
    EXPECT_EQ(recorded.ok(), items <= 8) << items;
    if (recorded.ok()) continue;
    EXPECT_THAT(recorded.error().message, HasSubstr("reaches beyond the memory"));
    EXPECT_THAT(recorded.error().message, HasSubstr("node 0 regen_test::reinterpret"));
  }
}

// --- profiles

struct Lie {
  const char* name;
  // Changes the record of the first call that it is about; true if it did.
  std::function<bool(const std::string& key, Json& record)> change;
};

void PrintTo(const Lie& one, std::ostream* out) {
  *out << one.name;
}

bool starts(const std::string& key, const char* op) {
  return key.starts_with(op);
}

class ProfilesThatLie : public ::testing::TestWithParam<Lie> {
 protected:
  static Program program() {
    return make_chain({.layers = 3, .dropout = true, .batch_norm = true, .update = true});
  }
};

// Losses and parameters have the bits of the bare operators: what does not describe its call is
// measured again, or found out before the first step has changed anything.
TEST_P(ProfilesThatLie, ChangeNoBit) {
  StepFixture step(program());
  const std::string path =
      ::testing::TempDir() + "regen_lie_" + std::string(GetParam().name) + ".json";
  std::filesystem::remove(path);
  const std::string device = step.device()->name();
  ASSERT_TRUE(record_with_file(step.program(), *step.device(), {.repeats = 1}, path).ok());
  Json document = *parse_json(*read_file(path), path);
  bool changed = false;
  for (auto it = document["calls"].begin(); it != document["calls"].end() && !changed; ++it) {
    changed = GetParam().change(it.key(), *it);
  }
  ASSERT_TRUE(changed);
  ASSERT_TRUE(write_file(path, document.dump()).ok());

  int distrusted = 0;
  RecordOptions options{.repeats = 1};
  options.on_distrust = [&](const Error&) { ++distrusted; };
  const auto recording = record_with_file(step.program(), *step.device(), options, path);
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  // Where the step cannot even be recorded with what the file says, none of it is used.
  EXPECT_TRUE(recording->remembered || distrusted > 0);
  const auto shared = std::make_shared<const Recording>(*recording);
  const auto graph = std::make_shared<const StepGraph>(
      *make_step_graph(*shared, {.alignment = step.device()->alignment()}));
  const auto outcome =
      search::solve_addressed("keep_all", {.graph = &graph->graph, .link = kTestLink},
                              {.alignment = step.device()->alignment()}, {.work = 1000});
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  const auto expected = step.run_directly(1);
  ASSERT_TRUE(step.data().reload().ok());
  auto executor =
      Executor::compile(shared, graph, *outcome->plan, step.device(), {.reserve = 1 << 14});
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  ASSERT_TRUE(bind(**executor, step.data()).ok());
  at::manual_seed(kTestSeed);
  const Status status = (*executor)->run(0);
  if (!status.ok()) {
    EXPECT_TRUE((*executor)->misrecorded()) << status.error().message;
    return;
  }
  const Program& made = shared->program;
  std::vector<at::Tensor> left;
  for (std::size_t r = 0; r < made.results.size(); ++r) left.push_back((*executor)->result(r));
  for (std::size_t r = 0; r < left.size(); ++r) EXPECT_TRUE(at::equal(left[r], expected[r])) << r;
  // One that is not about numbers (what a call allocates) may be met by the executor alone.
  if (distrusted == 0) {
    EXPECT_FALSE((*executor)->deviations().empty());
  }
}

INSTANTIATE_TEST_SUITE_P(All, ProfilesThatLie,
                         ::testing::ValuesIn(std::
                                                 vector<Lie>{
                                                     {"AReluIsAView",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::relu"))
                                                          return false;
                                                        record["results"][0]["source"] = 2;
                                                        record["results"][0]["index"] = 0;
                                                        return true;
                                                      }},
                                                     {"AWildArgument",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::t.")) return false;
                                                        record["results"][0]["index"] = 1 << 30;
                                                        return true;
                                                      }},
                                                     {"AWildAllocation",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::mm")) return false;
                                                        record["results"][0]["index"] = 1 << 30;
                                                        return true;
                                                      }},
                                                     {"AWildPlaceToOverwrite",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::relu"))
                                                          return false;
                                                        record["overwritable"] = {1 << 30};
                                                        return true;
                                                      }},
                                                     {"AMatrixProductInPlace",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::mm")) return false;
                                                        record["overwritable"] = {0};
                                                        return true;
                                                      }},
                                                     {"OtherStridesOfAView",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::t.")) return false;
                                                        std::swap(
                                                            record["results"][0]["strides"][0],
                                                            record["results"][0]["strides"][1]);
                                                        return true;
                                                      }},
                                                     {"OtherStridesOfAResult",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::relu"))
                                                          return false;
                                                        std::swap(
                                                            record["results"][0]["strides"][0],
                                                            record["results"][0]["strides"][1]);
                                                        std::swap(record["results"][0]["sizes"][0],
                                                                  record["results"][0]["sizes"][1]);
                                                        return true;
                                                      }},
                                                     {"AnotherType",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::relu"))
                                                          return false;
                                                        record["results"][0]["dtype"] = "int32";
                                                        return true;
                                                      }},
                                                     {"NoType",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::relu"))
                                                          return false;
                                                        record["results"][0]["dtype"] = "float31";
                                                        return true;
                                                      }},
                                                     {"FewerBytes",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::relu"))
                                                          return false;
                                                        record["allocations"][0][0] = 64;
                                                        return true;
                                                      }},
                                                     {"NoResults",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::native_dropout."))
                                                          return false;
                                                        record["results"] = Json::array();
                                                        return true;
                                                      }},
                                                     {"AnUndefinedResult",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::relu"))
                                                          return false;
                                                        record["results"][0]["source"] = 0;
                                                        return true;
                                                      }},
                                                     {"AResultOnTheHost",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::sum")) return false;
                                                        record["results"][0]["source"] = 3;
                                                        record["results"][0]["index"] = 1 << 19;
                                                        return true;
                                                      }},
                                                     {"AShorterRunOfARelu",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::relu"))
                                                          return false;
                                                        record["shorter_seconds"] = 1e-9;
                                                        return true;
                                                      }},
                                                     {"NegativeBytes",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::mm")) return false;
                                                        record["allocations"][0][0] = -5;
                                                        return true;
                                                      }},
                                                     {"NoRecord",
                                                      [](const std::string& key, Json& record) {
                                                        if (!starts(key, "aten::mm")) return false;
                                                        record = "fast";
                                                        return true;
                                                      }},
                                                 }),
                         [](const auto& one) { return one.param.name; });

// What the first use found wrong is right in the file from then on.
TEST(Profiles, AreMendedByTheProcessThatFindsThemWrong) {
  StepFixture step(make_chain({.layers = 2}));
  const std::string path = ::testing::TempDir() + "regen_mended.json";
  std::filesystem::remove(path);
  const auto record_counting = [&](RecordOptions options, int& distrusted) {
    options.repeats = 1;
    options.on_distrust = [&](const Error&) { ++distrusted; };
    EXPECT_TRUE(record_with_file(step.program(), *step.device(), options, path).ok());
  };
  int distrusted = 0;
  record_counting({}, distrusted);
  EXPECT_EQ(distrusted, 0);
  const Json good = *parse_json(*read_file(path), path);
  Json bad = good;
  for (Json& record : bad["calls"]) record["results"][0]["index"] = 77;
  ASSERT_TRUE(write_file(path, bad.dump()).ok());
  record_counting({}, distrusted);
  EXPECT_GT(distrusted, 0);
  distrusted = 0;
  record_counting({}, distrusted);
  EXPECT_EQ(distrusted, 0);
  for (const char* text :
       {"", "{}", "[1]", "{\"format\": \"regen-profile\", \"version\": 1}", "\xff"}) {
    ASSERT_TRUE(write_file(path, text).ok());
    distrusted = 0;
    record_counting({}, distrusted);
    EXPECT_EQ(distrusted, 1) << text;
    EXPECT_EQ((*parse_json(*read_file(path), path))["calls"].size(), good["calls"].size()) << text;
  }
}

// --- errors of the device

// Work on a queue fails later than it is asked for, as on CUDA: the next wait throws.
TEST(FailedDevices, EndWithTheFirstError) {
  const auto device = make_cpu_device({.asynchronous_compute = true});
  const auto fail = [&](const char* text) {
    device->post(Queue::kToHost, [text] { throw std::runtime_error(text); });
  };
  StepFixture step(make_chain({.layers = 2}));
  const search::Outcome outcome = step.solve("keep_all");
  const auto recording = std::make_shared<const Recording>(step.recording());
  const auto graph = std::make_shared<const StepGraph>(step.step());
  auto executor = Executor::compile(recording, graph, *outcome.plan, device, {.reserve = 1 << 14});
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  ASSERT_TRUE(bind(**executor, step.data()).ok());
  (*executor)->before_each_instruction([&](std::size_t) {
    fail("the second error");
    throw std::runtime_error("the first error");
  });
  const Status status = (*executor)->run(0);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("the first error"));
  fail("the third error");
  executor->reset();  // must not end the process

  auto again = Executor::compile(recording, graph, *outcome.plan, device, {.reserve = 1 << 14});
  ASSERT_TRUE(again.ok());
  fail("an error that nobody knows of");
  ::testing::internal::CaptureStderr();
  again->reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("an error that nobody knows of"));
}

}  // namespace
}  // namespace regen::execute
