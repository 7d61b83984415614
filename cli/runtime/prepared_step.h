// PROGRAM as a verb gets it: read from its folder, its data on the device, and recorded.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "regen/execute/program/program_data.h"
#include "regen/session/state/recorded_step.h"

namespace regen::cli {

struct ProgramArgument {
  std::string folder;
  std::string device;  // empty: the one that the program was captured on
  std::int64_t repeats = 5;
  std::string cache;                 // of measurements; empty: none
  std::vector<std::string> allowed;  // operators beside those that are always permitted
  execute::Algorithms algorithms = execute::Algorithms::kDefault;
  Bytes reserve = 0;  // what a caller holds beside the step; part of the graph
};

void add_program(CLI::App& verb, ProgramArgument& argument);

struct PreparedStep {
  session::RecordedStep recorded;
  std::optional<execute::ProgramData> data;
  bool data_used = false;         // a step has run on it
  Bytes driver_bytes_before = 0;  // on CUDA: what the driver counts without this step

  const execute::Program& program() const { return recorded.captured_program(); }
  execute::ExecutionDevice& device() const { return *recorded.device(); }
  const Graph& graph() const { return recorded.graph(); }
};

struct PrepareOptions {
  bool needs_data = true;      // refuse a program whose contents do not travel with it
  bool measures_link = false;  // and writes it into the graph's attributes
};

Result<PreparedStep> prepare_step(const ProgramArgument& argument, const PrepareOptions& options);

}  // namespace regen::cli
