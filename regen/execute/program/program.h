// One training step as PyTorch operators (docs/reference/program-format.md), before any planning.
//
//   Storage  memory with a size; its role says where it comes from
//   Value    a tensor: a typed, strided view on a storage
//   Node     a call of an operator on values, in the order plain PyTorch would run them
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/id.h"
#include "regen/base/json.h"
#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/graph/graph.h"

namespace regen::execute {

using StorageId = Id<struct StorageTag>;
using ValueId = Id<struct ValueTag>;
using NodeId = Id<struct NodeTag>;

enum class Role : std::uint8_t {
  kInput,
  kParameter,
  kBuffer,
  kState,
  kConstant,
  kTangent,
  kComputed
};

std::string_view to_string(Role role);

struct StorageSpec {
  std::string name;
  Role role = Role::kComputed;
  Bytes bytes = 0;
  std::string device = {};  // where it differs from the program's: numbers that stay on the host

  bool operator==(const StorageSpec&) const = default;
};

struct ValueSpec {
  StorageId storage;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;  // in elements

  bool operator==(const ValueSpec&) const = default;
};

struct Node {
  std::string name;
  std::string op;        // "aten::convolution"
  std::string overload;  // "" for the default one
  std::vector<Json> args;
  Json kwargs = Json::object();
  std::vector<ValueId> outputs;  // none() where the result is not read
  Phase phase = Phase::kForward;
  bool random = false;
  bool recomputable = true;
  std::string source;                 // of the user's code, for messages
  std::optional<std::string> module;  // its path in the model ("layers.0"); absent: it runs in none

  bool operator==(const Node&) const = default;
};

enum class ResultKind : std::uint8_t { kOutput, kGradient };

struct ProgramResult {
  ValueId value;
  ResultKind kind = ResultKind::kOutput;
  std::string name;

  bool operator==(const ProgramResult&) const = default;
};

struct ScalarSpec {
  std::string name;
  double value = 0;

  bool operator==(const ScalarSpec&) const = default;
};

// Where the contents of a storage lie in data.bin.
struct DataSpec {
  StorageId storage;
  Bytes offset = 0;
  Bytes bytes = 0;

  bool operator==(const DataSpec&) const = default;
};

struct Program {
  std::string name;
  std::string torch;   // the version that captured it
  std::string device;  // "cpu" or "cuda"
  IdVector<StorageId, StorageSpec> storages;
  IdVector<ValueId, ValueSpec> values;
  IdVector<NodeId, Node> nodes;
  std::optional<std::size_t> boundary;  // nodes before it are the forward part
  bool gradients = true;                // false: inference, as under torch.no_grad()
  std::vector<ScalarSpec> scalars;
  std::vector<ProgramResult> results;
  std::vector<DataSpec> data;

  bool operator==(const Program&) const = default;
};

// Whether a view reaches no further than this many bytes from the beginning of its storage.
bool fits_in(const ValueSpec& value, Bytes bytes);

// Checks every rule that needs no dispatcher: ids in range, reads after writes, sizes in bounds.
Result<Program> read_program(std::string_view json, std::string_view source);
std::string write_program(const Program& program);

// From a folder with program.json.
Result<Program> load_program(const std::string& folder);
// The contents of a storage as they travel with the program; an error if they do not.
Result<std::string> load_data(const std::string& folder, const Program& program, StorageId storage);

// "node 17 aten::convolution 'conv1' (model.py:31)", for messages.
std::string describe(const Program& program, NodeId id);

}  // namespace regen::execute
