// Training steps written by hand, small enough to be run many times, and folders that hold them.
#pragma once

#include <string>
#include <vector>

#include "regen/execute/program/program.h"

namespace regen::execute {

// Puts a program together, value by value. Sizes of computed values are left to the recording.
class ProgramMaker {
 public:
  explicit ProgramMaker(std::string name);

  // Contiguous, of float32 unless said otherwise.
  ValueId bring(const std::string& name, Role role, std::vector<std::int64_t> sizes,
                c10::ScalarType dtype = c10::ScalarType::Float);
  // Calls op ("aten::mm" or "aten::add_.Tensor"); `results` says which results are read later.
  std::vector<ValueId> call(const std::string& op, std::vector<Json> args,
                            const std::vector<bool>& results = {true},
                            Json kwargs = Json::object());
  ValueId call1(const std::string& op, std::vector<Json> args) {
    return call(op, std::move(args))[0];
  }
  void result(ValueId value, ResultKind kind, const std::string& name);

  Program& program() { return program_; }
  Phase phase = Phase::kForward;

 private:
  Program program_;
};

// {"value": i}
Json ref(ValueId value);

struct ChainOptions {
  std::size_t layers = 4;
  std::int64_t width = 48;
  bool dropout = false;
  bool batch_norm = false;
  bool boundary = false;  // as wrap makes them: the caller brings the gradient of the output
  bool update = false;    // plain gradient descent at the end; not with a boundary
};

// Linear layers with relu, their backward pass, and the gradients of the weights.
Program make_chain(const ChainOptions& options = {});

// A folder in the tests' temporary one with the program and random contents for whatever it is
// brought, always the same ones. Returns its path.
std::string save_program(Program program, const std::string& name);

}  // namespace regen::execute
