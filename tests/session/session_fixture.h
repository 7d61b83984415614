// A small captured step on the CPU, recorded, with a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/program/program_data.h"
#include "regen/published/planner_list.h"
#include "regen/session/session.h"
#include "tests/execute/small_program.h"

namespace regen::session {

using execute::ChainOptions;
using execute::make_chain;
using execute::save_program;

inline constexpr Link kTestLink{1e9, 1e9, 2e9};

// Without copies, so that memory is won by running ops again alone.
inline constexpr Link kNoLink{};

inline std::string fresh_folder(const std::string& name) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string path =
      ::testing::TempDir() + "/" + test->test_suite_name() + "_" + test->name() + "_" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

inline CapturedStep captured_chain(const ChainOptions& options = {.update = true}) {
  return CapturedStep(make_chain(options), execute::make_cpu_device());
}

inline RecordedStep recorded_chain(const ChainOptions& options = {.update = true},
                                   const Link& link = kTestLink) {
  auto recorded =
      captured_chain(options).record({.repeats = 1, .link = std::make_shared<LinkSource>(link)});
  EXPECT_TRUE(recorded.ok()) << recorded.error().message;
  return *recorded;
}

inline Settings test_settings(const std::string& budget) {
  Settings settings;
  settings.budget = *Budget::parse(budget);
  settings.work_limit = 50'000;
  settings.link = kTestLink;
  return settings;
}

inline std::unique_ptr<Session> open_session(const CapturedStep& captured, Settings settings,
                                             Surroundings surroundings = {}) {
  if (surroundings.registry == nullptr) surroundings.registry = &published::every_planner();
  auto session = Session::open(captured, std::move(settings), std::move(surroundings));
  EXPECT_TRUE(session.ok()) << session.error().message;
  return std::move(*session);
}

}  // namespace regen::session
