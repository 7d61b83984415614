// The arguments of one call: every storage it touches, once, in order of appearance, and what
// distinguishes the call from others on the same device.
#pragma once

#include <string>
#include <vector>

#include "regen/execute/program/program.h"

namespace regen::execute {

class CallArguments {
 public:
  // The program outlives this.
  CallArguments(const Program& program, const Node& node);

  const std::vector<ValueId>& values() const { return values_; }
  const std::vector<StorageId>& storages() const { return storages_; }
  std::size_t place(StorageId storage) const;

  // Operator, arguments, shapes, types and strides.
  std::string key() const;
  // The same without what does not matter for the choice of an algorithm: calls with one problem
  // take the same algorithm, as libraries remember one for each problem.
  std::string problem() const;

 private:
  std::string described_call(const std::vector<std::size_t>& left_out) const;
  Json described(const Json& argument) const;

  const Program& program_;
  const Node& node_;
  std::vector<ValueId> values_;
  std::vector<StorageId> storages_;
};

}  // namespace regen::execute
