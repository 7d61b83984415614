// MONeT instances: the solver graph and profiled costs of one network in one mode, as plain JSON
// (docs/reference/formats.md, "monet"). The numbering of the nodes is the time order: forward
// nodes, each directly followed by its intermediate nodes; the loss; backward nodes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/graph/graph.h"

namespace regen::published {

enum class MonetKind : std::uint8_t {
  kForward,       // FwdNode: an op of the network, or the loss
  kIntermediate,  // IntNode: a by-product of its parent that a backward implementation can use
  kBackward,      // BwdNode
};

// One entry for each implementation, or for each convolution algorithm.
struct MonetCosts {
  std::vector<double> workspace_mib;  // negative when the op frees or overwrites what it reads
  std::vector<double> ms;             // -1000: the algorithm failed

  bool operator==(const MonetCosts&) const = default;
};

struct MonetNode {
  MonetKind kind = MonetKind::kForward;
  std::string op;                            // aten::relu_, int::BinaryActReLU, loss::loss, ...
  Bytes mem = 0;                             // what it makes
  Bytes local_memory = 0;                    // of local_tensors
  std::vector<std::uint32_t> local_tensors;  // nodes alive around it under plain execution
  Bytes fixed_mem = 0;  // inputs and parameters, and the parameter gradients made up to here
  MonetCosts first_run;
  MonetCosts rerun;
  MonetCosts in_place;
  std::vector<std::vector<std::uint32_t>> args;  // for each implementation, the nodes it needs

  // Forward and intermediate nodes.
  std::vector<std::int64_t> shape;  // -1 is the batch; of an intermediate node, minus its bytes
  struct Intermediate {
    std::uint32_t implementation = 0;
    std::uint32_t node = 0;

    bool operator==(const Intermediate&) const = default;
  };
  std::vector<Intermediate> intermediates;

  // Intermediate nodes.
  std::uint32_t parent = 0;
  std::uint32_t op_idx = 0;  // the implementation of the parent that makes it

  // Backward nodes.
  std::string bwd_op;  // param_grad or ip_grad
  std::uint32_t fwd_id = 0;

  bool operator==(const MonetNode&) const = default;
};

// Node `to` needs node `from` when it runs with this implementation.
struct MonetEdge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t implementation = 0;

  bool operator==(const MonetEdge&) const = default;
};

struct MonetInstance {
  std::string model;
  std::int64_t batch = 0;
  std::string mode;
  std::uint32_t loss = 0;  // its node; V = loss + 1 and T = nodes - loss
  std::vector<MonetNode> nodes;
  std::vector<MonetEdge> edges;
  std::map<std::uint32_t, std::uint32_t> conv_list;  // node to convolution number
  std::int64_t num_conv_algos = 1;
  std::map<std::uint32_t, std::uint32_t> inplace_list;  // node to the input it may overwrite

  bool operator==(const MonetInstance&) const = default;
};

// Checks the shape of every field, that nodes refer to earlier ones, and that the kinds come in
// the stated order.
Result<MonetInstance> read_monet_instance(std::string_view text, const std::string& source);
// One node a line; what is read back is equal, and so are the JSON values of text and original.
// Fails when a name is not UTF-8.
Result<std::string> write_monet_instance(const MonetInstance& instance);

// Tensor i is what node i makes. Then come one fixed tensor for the inputs and parameters, and the
// parameter gradients (kind output) by which fixed_mem grows. Costs are in seconds.
//   forward op   variants: each algorithm that did not fail; or plain, and plain with each
//                intermediate node as an extra output; then the same in place
//   backward op  variants: each algorithm, or each implementation with its own reads; then, where
//                the workspace is negative, the same overwriting an incoming gradient
// The default variant never overwrites, so that every planner can use it.
Result<Graph> graph_from_monet(const MonetInstance& instance, const std::string& source);

// A graph that came from an instance gives that instance back. Any other graph becomes an
// instance of one implementation an op: its default variant; it needs backward ops, and forward
// ops of one output. Update ops are left out. Costs in flop are written at 1 Tflop/s.
Result<MonetInstance> monet_from_graph(const Graph& graph);

}  // namespace regen::published
