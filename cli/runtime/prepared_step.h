// PROGRAM as a verb gets it: read from its folder, its data on the device, recorded, and turned
// into the graph that planners know.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "regen/cost/device.h"
#include "regen/execute/program/program_data.h"
#include "regen/execute/program/step_graph.h"
#include "regen/execute/record/record.h"

namespace regen::cli {

struct ProgramArgument {
  std::string folder;
  std::string device;  // empty: the one that the program was captured on
  std::int64_t repeats = 5;
  std::string cache;  // of measurements; empty: none
  execute::Algorithms algorithms = execute::Algorithms::kDefault;
  Bytes reserve = 0;  // what a caller holds beside the step; part of the graph
};

void add_program(CLI::App& verb, ProgramArgument& argument);

struct PreparedStep {
  execute::Program program;  // as captured
  std::shared_ptr<execute::ExecutionDevice> device;
  std::shared_ptr<const execute::Recording> recording;
  std::shared_ptr<const execute::StepGraph> step;
  std::optional<execute::ProgramData> data;
  bool data_used = false;         // a step has run on it
  std::optional<Link> link;       // once somebody has asked
  Bytes unforeseen_bytes = 0;     // room for allocations that were not recorded; in the graph
  Bytes driver_bytes_before = 0;  // on CUDA: what the driver counts without this step

  const Graph& graph() const { return step->graph; }
};

struct PrepareOptions {
  bool needs_data = true;      // refuse a program whose contents do not travel with it
  bool measures_link = false;  // and writes it into the graph's attributes
};

Result<PreparedStep> prepare_step(const ProgramArgument& argument, const PrepareOptions& options);

// Measured the first time.
Result<Link> link_of(PreparedStep& prepared);

// {"to_host": ..., "to_device": ..., "both": ...} in bytes per second.
Json link_json(const Link& link);

}  // namespace regen::cli
