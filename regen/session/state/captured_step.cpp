#include "regen/session/state/captured_step.h"

#include <utility>

namespace regen::session {

CapturedStep::CapturedStep(execute::Program program,
                           std::shared_ptr<execute::ExecutionDevice> device)
    : program_(std::make_shared<const execute::Program>(std::move(program))),
      device_(std::move(device)) {}

Result<CapturedStep> CapturedStep::read(std::string_view json, const std::string& device) {
  REGEN_ASSIGN(execute::Program program, execute::read_program(json, "program"));
  REGEN_ASSIGN(auto opened, execute::open_device(device.empty() ? program.device : device));
  return CapturedStep(std::move(program), std::move(opened));
}

}  // namespace regen::session
