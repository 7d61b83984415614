// The text format of the lower-set solvers (docs/reference/formats.md, "lower-sets"): variables,
// forward blocks, and one backward block for each forward block in the same order.
//
//   3 2               three variables, two blocks
//   0 64 0            variable 0: 64 bytes, network input number 0
//   1 16 /fc/W        variable 1: a parameter
//   2 64 _            variable 2: an intermediate value
//   forward
//   2 1               two inputs, one output
//   0 _
//   1 _
//   2
//   LinearFunction
//   {"rank": 0}
//   backward
//   2 2
//   2 gradient        the gradient of variable 2
//   1 input           the value of variable 1
//   0                 makes the gradients of 0 and 1
//   1
//   LinearFunction
//   {"rank": 0}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/graph/graph.h"

namespace regen::published {

// What a block reads of a variable.
enum class LowerSetRole : std::uint8_t {
  kValue,     // "_": its value, in a forward block
  kGradient,  // its gradient; the other three only in a backward block
  kInput,     // its value, an input of the forward twin
  kOutput,    // its value, an output of the forward twin
};

struct LowerSetVariable {
  Bytes bytes = 0;
  std::string name;  // "_", a number for a network input, or the path of a parameter

  bool operator==(const LowerSetVariable&) const = default;
};

struct LowerSetRead {
  std::uint32_t variable = 0;
  LowerSetRole role = LowerSetRole::kValue;

  bool operator==(const LowerSetRead&) const = default;
};

struct LowerSetBlock {
  bool backward = false;
  std::vector<LowerSetRead> inputs;
  std::vector<std::uint32_t> outputs;  // forward: the one variable made; backward: whose gradients
  std::string type;
  std::string attributes;  // a JSON object, kept as it was written

  bool operator==(const LowerSetBlock&) const = default;
};

// The file as it stands; ids are places in `variables`.
struct LowerSetFile {
  std::vector<LowerSetVariable> variables;
  std::vector<LowerSetBlock> blocks;  // the forward blocks, then their backward twins

  bool operator==(const LowerSetFile&) const = default;
};

// Checks counts, ids and roles; what only a graph shows (cycles, a variable made twice) is left to
// graph_from_lower_sets.
Result<LowerSetFile> read_lower_set_file(std::string_view text, const std::string& source);
// What was read comes out byte for byte, but for blanks at the ends of lines.
std::string write_lower_set_file(const LowerSetFile& file);

// Tensors 0 to N-1 are the values of the N variables; gradients follow. Forward ops come in
// order of (rank, place in the file). A gradient that several blocks make is summed by
// "accumulate" ops, so that every tensor has one maker. Costs are those of the solvers: 10 for a
// forward op whose type begins with Conv, 1 for other forward ops, 0 for backward ops, so that
// the cost of the graph is T(V) and its overhead the published one.
Result<Graph> graph_from_lower_sets(const LowerSetFile& file, const std::string& source);

// A graph that came from such a file gives that file back. Of any other graph, the forward ops
// (each with one output) are written as they are, and backward twins are made up that read those
// inputs and outputs of the op that some backward op of the graph reads.
Result<LowerSetFile> lower_sets_from_graph(const Graph& graph);

// The cost of a forward block of this type.
double lower_set_cost(std::string_view type);

// The sizes the solvers print. G has the variables that some forward block makes as nodes, and an
// edge from each to those made from it.
struct LowerSetStatistics {
  std::size_t variables = 0;
  std::size_t intermediates = 0;  // nodes of G
  std::size_t edges = 0;          // of G, parallel ones counted once
  Bytes activation_bytes = 0;     // of the nodes of G
  Bytes parameter_bytes = 0;      // of the variables whose name begins with /
  double forward_cost = 0;        // T(V)

  bool operator==(const LowerSetStatistics&) const = default;
};

LowerSetStatistics lower_set_statistics(const LowerSetFile& file);

}  // namespace regen::published
