// Programs as files: what is written reads back, and every mistake is refused where it is.
#include "regen/execute/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "regen/execute/program/program_data.h"
#include "small_program.h"

namespace regen::execute {
namespace {

using ::testing::HasSubstr;

Program everything() {
  Program program =
      make_chain({.layers = 2, .dropout = true, .batch_norm = true, .boundary = true});
  program.scalars.push_back({"lr", 0.1});
  program.storages[StorageId(0)].device = "cpu";
  program.nodes[NodeId(0)].source = "model.py:31";
  program.nodes[NodeId(0)].module = "layers.0";
  program.nodes[NodeId(1)].module = "";  // in the model itself; the others run in no module
  program.nodes[NodeId(1)].recomputable = false;
  program.data.push_back({StorageId(0), 64, 36864});
  return program;
}

TEST(Program, ReadsBackAsWritten) {
  const Program program = everything();
  const auto read = read_program(write_program(program), "test");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, program);
  EXPECT_EQ(write_program(*read), write_program(program));
}

struct Mistake {
  const char* name;
  std::function<void(Json&)> make;
  const char* message;
};

void PrintTo(const Mistake& one, std::ostream* out) {
  *out << one.name;
}

class ProgramMistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(ProgramMistakes, AreRefusedWhereTheyAre) {
  Json json = Json::parse(write_program(everything()));
  GetParam().make(json);
  const auto read = read_program(json.dump(), "p.json");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(read.error().message, HasSubstr("p.json"));
  EXPECT_THAT(read.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, ProgramMistakes,
    ::testing::ValuesIn(std::vector<Mistake>{
        {"Format", [](Json& j) { j["format"] = "regen-plan"; }, "format"},
        {"Version", [](Json& j) { j["version"] = 99; }, "99"},
        {"UnknownField", [](Json& j) { j["nodez"] = 1; }, "nodez"},
        {"NoNodes", [](Json& j) { j.erase("nodes"); }, "nodes"},
        {"NodesNoList", [](Json& j) { j["nodes"] = 3; }, "nodes"},
        {"Role", [](Json& j) { j["storages"][0]["role"] = "liquid"; }, "liquid"},
        {"NegativeBytes", [](Json& j) { j["storages"][0]["bytes"] = -1; }, "storages[0].bytes"},
        {"StorageOutOfRange", [](Json& j) { j["values"][0]["storage"] = 999; }, "999"},
        {"Dtype", [](Json& j) { j["values"][0]["dtype"] = "float31"; }, "float31"},
        {"SizesWithoutStrides", [](Json& j) { j["values"][0]["strides"] = {1}; }, "strides"},
        {"WindowBeyondStorage", [](Json& j) { j["values"][0]["offset"] = 1; }, "beyond storage 0"},
        {"HugeWindow",
         [](Json& j) {
           j["values"][0]["sizes"] = {1LL << 50, 1LL << 50};
         },
         "beyond storage 0"},
        {"NegativeOffset", [](Json& j) { j["values"][0]["offset"] = -4; }, "offset"},
        {"Phase", [](Json& j) { j["nodes"][0]["phase"] = "sideways"; }, "sideways"},
        {"OutputOutOfRange", [](Json& j) { j["nodes"][0]["outputs"] = {999}; }, "999"},
        {"ArgumentOutOfRange",
         [](Json& j) {
           j["nodes"][0]["args"][0] = {{"value", 999}};
         },
         "999"},
        {"NegativeArgument",
         [](Json& j) {
           j["nodes"][0]["args"][0] = {{"value", -1}};
         },
         "-1"},
        {"ScalarOutOfRange",
         [](Json& j) {
           j["nodes"][0]["args"][0] = {{"scalar", 7}};
         },
         "scalar 7"},
        {"FlagNoBoolean", [](Json& j) { j["nodes"][0]["random"] = 1; }, "random"},
        {"ReadBeforeMade",
         [](Json& j) { std::swap(j["nodes"][0]["outputs"], j["nodes"][8]["outputs"]); },
         "no earlier node makes"},
        {"ResultOutOfRange", [](Json& j) { j["results"][0]["value"] = 999; }, "results[0].value"},
        {"ResultKind", [](Json& j) { j["results"][0]["kind"] = "input"; }, "gradient"},
        {"ResultNeverMade", [](Json& j) { j["nodes"].back()["outputs"] = {nullptr}; },
         "no node makes"},
        {"Boundary", [](Json& j) { j["boundary"] = 1000; }, "boundary"},
        {"DataOfNothing", [](Json& j) { j["data"][0]["storage"] = 999; }, "data[0].storage"},
        {"DataBeforeFile", [](Json& j) { j["data"][0]["offset"] = -1; }, "offset"},
    }),
    [](const auto& one) { return one.param.name; });

TEST(Program, BrokenTextIsRefused) {
  const std::string text = write_program(everything());
  for (std::size_t length = 0; length + 2 < text.size(); length += 97) {
    EXPECT_FALSE(read_program(text.substr(0, length), "p.json").ok()) << length;
  }
}

TEST(Program, FoldersWithoutOneAreRefused) {
  const auto none = load_program("/nowhere/at/all");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("/nowhere/at/all/program.json"));
}

TEST(ProgramData, TravelsWithTheProgram) {
  const Program chain = make_chain({.layers = 1, .boundary = true});
  const std::string folder = save_program(chain, "data");
  const auto program = load_program(folder);
  ASSERT_TRUE(program.ok()) << program.error().message;
  auto data = ProgramData::load(folder, *program, c10::kCPU);
  ASSERT_TRUE(data.ok()) << data.error().message;
  for (std::size_t s = 0; s < program->storages.size(); ++s) {
    const StorageSpec& spec = program->storages[StorageId(s)];
    const at::Tensor& tensor = data->tensor(StorageId(s));
    ASSERT_EQ(tensor.defined(), spec.role != Role::kComputed) << spec.name;
    if (!tensor.defined()) continue;
    EXPECT_EQ(tensor.numel(), spec.bytes);
    if (spec.role == Role::kTangent) {
      EXPECT_EQ(*static_cast<const float*>(tensor.const_data_ptr()), 1.0F);
      continue;
    }
    const auto bytes = load_data(folder, *program, StorageId(s));
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(*bytes, std::string(static_cast<const char*>(tensor.const_data_ptr()),
                                  static_cast<std::size_t>(spec.bytes)));
  }
}

TEST(ProgramData, ReloadUndoesWhatStepsChanged) {
  const std::string folder = save_program(make_chain({.layers = 1}), "reload");
  auto program = load_program(folder);
  ASSERT_TRUE(program.ok());
  auto data = ProgramData::load(folder, *program, c10::kCPU);
  ASSERT_TRUE(data.ok());
  const at::Tensor before = data->tensor(StorageId(0)).clone();
  data->tensor(StorageId(0)).fill_(7);
  ASSERT_TRUE(data->reload().ok());
  EXPECT_TRUE(data->tensor(StorageId(0)).equal(before));
}

TEST(ProgramData, MissingShortAndWrongDataAreRefused) {
  const std::string folder = save_program(make_chain({.layers = 1}), "short");
  auto program = load_program(folder);
  ASSERT_TRUE(program.ok());

  Program without = *program;
  without.data.pop_back();
  const auto missing = ProgramData::load(folder, without, c10::kCPU);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("layer0.weight"));
  EXPECT_TRUE(ProgramData::load(folder, without, c10::kCPU, /*complete=*/false).ok());

  Program wrong = *program;
  wrong.data[0].bytes -= 4;
  const auto size = ProgramData::load(folder, wrong, c10::kCPU);
  ASSERT_FALSE(size.ok());
  EXPECT_THAT(size.error().message, HasSubstr("expected 36864"));

  std::filesystem::resize_file(folder + "/data.bin", 36864 + 100);
  const auto ended = ProgramData::load(folder, *program, c10::kCPU);
  ASSERT_FALSE(ended.ok());
  EXPECT_THAT(ended.error().message, HasSubstr("data.bin"));
}

}  // namespace
}  // namespace regen::execute
