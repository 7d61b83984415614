#include "regen/session/captured_step.h"

#include <utility>

namespace regen::session {

CapturedStep::CapturedStep(Program program, std::shared_ptr<ExecutionDevice> device)
    : program_(std::make_shared<const Program>(std::move(program))), device_(std::move(device)) {}

Result<CapturedStep> CapturedStep::read(std::string_view json, const std::string& device) {
  REGEN_ASSIGN(Program program, read_program(json, "program"));
  REGEN_ASSIGN(auto opened, open_device(device.empty() ? program.device : device));
  return CapturedStep(std::move(program), std::move(opened));
}

}  // namespace regen::session
