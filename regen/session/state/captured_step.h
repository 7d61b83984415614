// The first state of a step: its program and the device that it is to run on.
//
//   CapturedStep --record--> RecordedStep --plan--> PlannedStep --compile--> CompiledStep --run-->
//                                              \--> Refusal
//
// Each state is a type, made by the state before it alone: a step that was not recorded cannot be
// planned, and a plan that the validator refused cannot be compiled.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "regen/execute/device/device.h"
#include "regen/execute/program/program.h"

namespace regen::session {

class RecordedStep;
struct RecordingOptions;

class CapturedStep {
 public:
  CapturedStep(execute::Program program, std::shared_ptr<execute::ExecutionDevice> device);

  // From the text of a program file. `device` names the device; empty: the one of the capture.
  static Result<CapturedStep> read(std::string_view json, const std::string& device = "");

  const execute::Program& program() const { return *program_; }
  const std::shared_ptr<execute::ExecutionDevice>& device() const { return device_; }

  // Runs every operator alone on the device, and makes the graph for planners.
  Result<RecordedStep> record(const RecordingOptions& options) const;

 private:
  std::shared_ptr<const execute::Program> program_;
  std::shared_ptr<execute::ExecutionDevice> device_;
};

}  // namespace regen::session
