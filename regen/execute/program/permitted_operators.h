// Which operators a program may call that comes from a file, and so perhaps from a stranger.
//
//   functional   of aten, known to compute its results from its arguments and to do nothing else
//   updates      of aten, that write to tensors they are given: copies, in-place arithmetic, and
//                the steps of optimizers (_foreach_*, _fused_*)
//   named        by the user, as "namespace::operator"; the user answers for them
//
// Everything else is refused before anything runs: an operator may read and write files, or make a
// tensor over memory that it was not given. What this process has captured itself is not checked: there
// the user's own code has called the operators already.
#pragma once

#include <string>
#include <vector>

#include "regen/execute/program/program.h"

namespace regen::execute {

class PermittedOperators {
 public:
  // Beside those that are always permitted.
  explicit PermittedOperators(std::vector<std::string> named = {}) : named_(std::move(named)) {}

  // The first call of another operator is an error that names it.
  Status check(const Program& program) const;

 private:
  Status check(const Program& program, NodeId node) const;

  std::vector<std::string> named_;
};

}  // namespace regen::execute
