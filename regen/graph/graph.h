// One training step as a value: ops over tensors in one fixed topological order.
//
//   Tensor   a storage with a size in bytes; views of it are not tensors of their own.
//            Fixed tensors (inputs, parameters, state) exist before the step and stay on the
//            device; every other tensor is made by exactly one op.
//   Op       reads tensors, makes tensors; op ids ascend in the fixed order, so every tensor is
//            made before an op with a higher id reads it. An op without outputs is allowed: a
//            view, or an update that only mutates fixed tensors.
//   Variant  one way to run an op: its cost, its workspace, what it really reads, what it makes
//            beyond the op's outputs, and which input it overwrites. Every op has at least one;
//            the first is the default.
//   Group    ops that take one and the same choice among their variants, as convolutions of one
//            shape do whose library keeps a single algorithm for it. Their variants differ in cost
//            and workspace alone, and each member has as many.
//   Cost     a number in the graph's unit (seconds or flop), for the first run and for re-runs.
//
// A Graph never changes after GraphBuilder::build(); it is stored as structure of arrays, so
// that 100,000 ops stay fast. All ids passed in must be valid for this graph.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/id.h"
#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/graph/csr.h"

namespace regen {

using OpId = Id<struct OpTag>;
using TensorId = Id<struct TensorTag>;
using VariantId = Id<struct VariantTag>;  // counted over the whole graph
using ChoiceGroupId = Id<struct ChoiceGroupTag>;

enum class TensorKind : std::uint8_t { kInput, kParam, kState, kActivation, kGradient, kOutput };
enum class Phase : std::uint8_t { kForward, kLoss, kBackward, kUpdate };

std::string_view to_string(TensorKind kind);
std::string_view to_string(Phase phase);
Result<TensorKind> parse_tensor_kind(std::string_view text);
Result<Phase> parse_phase(std::string_view text);

// Fixed tensors are on the device before, during and after the step.
constexpr bool is_fixed(TensorKind kind) {
  return kind <= TensorKind::kState;
}

struct TensorSpec {
  std::string name;
  Bytes bytes = 0;
  TensorKind kind = TensorKind::kActivation;
  std::string attributes;  // a JSON object as text, or empty: carried along, never interpreted

  bool operator==(const TensorSpec&) const = default;
};

struct VariantSpec {
  std::string name;
  double cost = 0;
  std::optional<double> rerun_cost;            // absent: as `cost`
  Bytes workspace = 0;                         // bytes in use only while the op runs
  std::optional<std::vector<TensorId>> reads;  // absent: all inputs of the op
  std::vector<TensorId> extra_outputs;         // made by this variant only (a packed mask); never
                                               // of kind output
  TensorId overwrites;                         // an input that becomes the op's first output
  double flops = 0;                            // arithmetic, for cost models; 0: unknown
  double traffic = 0;                          // bytes moved through device memory; 0: unknown

  bool operator==(const VariantSpec&) const = default;
};

struct OpSpec {
  std::string name;
  std::string type;
  Phase phase = Phase::kForward;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  std::vector<TensorId> mutates;  // fixed tensors changed in place; such an op runs exactly once
  bool recomputable = true;
  bool random = false;  // a re-run replays the saved generator state
  std::vector<VariantSpec> variants;
  ChoiceGroupId choice_group;  // the ops that take the same choice; none: it chooses for itself
  std::string attributes;

  bool operator==(const OpSpec&) const = default;
};

class Graph {
 public:
  const std::string& name() const { return name_; }
  CostUnit cost_unit() const { return cost_unit_; }
  const std::string& attributes() const { return attributes_; }

  std::size_t num_ops() const { return op_names_.size(); }
  std::size_t num_tensors() const { return tensor_names_.size(); }
  std::size_t num_variants() const { return variant_costs_.size(); }
  IdRange<OpId> ops() const { return IdRange<OpId>(num_ops()); }
  IdRange<TensorId> tensors() const { return IdRange<TensorId>(num_tensors()); }

  const std::string& name(OpId op) const { return op_names_[op]; }
  const std::string& type(OpId op) const { return op_types_[op]; }
  const std::string& attributes(OpId op) const { return op_attributes_[op]; }
  Phase phase(OpId op) const { return op_phases_[op]; }
  bool recomputable(OpId op) const { return op_recomputable_[op]; }
  bool random(OpId op) const { return op_random_[op]; }
  // None for an op that chooses for itself. Ids are below the number of ops.
  ChoiceGroupId choice_group(OpId op) const { return op_choice_groups_[op]; }
  // Every tensor that some variant reads, without repetition.
  std::span<const TensorId> inputs(OpId op) const { return op_inputs_[op]; }
  // What every variant makes.
  std::span<const TensorId> outputs(OpId op) const { return op_outputs_[op]; }
  std::span<const TensorId> mutates(OpId op) const { return op_mutates_[op]; }
  IdRange<VariantId> variants(OpId op) const {
    return {first_variant_[op.index()], first_variant_[op.index() + 1]};
  }
  VariantId default_variant(OpId op) const { return VariantId(first_variant_[op.index()]); }

  const std::string& name(VariantId v) const { return variant_names_[v]; }
  OpId op(VariantId v) const { return variant_ops_[v]; }
  double cost(VariantId v) const { return variant_costs_[v]; }
  double rerun_cost(VariantId v) const { return variant_rerun_costs_[v]; }
  Bytes workspace(VariantId v) const { return variant_workspaces_[v]; }
  double flops(VariantId v) const { return variant_flops_[v]; }
  double traffic(VariantId v) const { return variant_traffic_[v]; }
  std::span<const TensorId> reads(VariantId v) const { return variant_reads_[v]; }
  // The op's outputs, then the variant's extra outputs.
  std::span<const TensorId> makes(VariantId v) const { return variant_makes_[v]; }
  // The input whose storage becomes the first output, or none.
  TensorId overwrites(VariantId v) const { return variant_overwrites_[v]; }

  const std::string& name(TensorId t) const { return tensor_names_[t]; }
  const std::string& attributes(TensorId t) const { return tensor_attributes_[t]; }
  Bytes bytes(TensorId t) const { return tensor_bytes_[t]; }
  TensorKind kind(TensorId t) const { return tensor_kinds_[t]; }
  bool fixed(TensorId t) const { return is_fixed(tensor_kinds_[t]); }
  // None for fixed tensors.
  OpId producer(TensorId t) const { return tensor_producers_[t]; }
  // The ops that read it in some variant, ascending.
  std::span<const OpId> consumers(TensorId t) const { return tensor_consumers_[t]; }

  // Sum over the fixed tensors.
  Bytes fixed_bytes() const { return fixed_bytes_; }
  // Sum of the default variants' first-run costs: the step with everything kept.
  double base_cost() const { return base_cost_; }
  // Pairs (producer, reader) counted once per tensor; fixed tensors have no producer.
  std::size_t num_edges() const;

  // The same graph with other costs, indexed by variant.
  Graph with_costs(std::span<const double> cost, std::span<const double> rerun_cost,
                   CostUnit unit) const;

  // The inputs of GraphBuilder again: building from them gives an equal graph.
  TensorSpec tensor_spec(TensorId t) const;
  OpSpec op_spec(OpId op) const;

  // A 64-bit fingerprint of structure and sizes: everything a plan depends on, so not of names,
  // attributes and costs. Equal on every machine.
  std::uint64_t fingerprint() const;

  bool operator==(const Graph&) const = default;

 private:
  friend class GraphBuilder;

  std::string name_;
  std::string attributes_;
  CostUnit cost_unit_ = CostUnit::kFlop;
  Bytes fixed_bytes_ = 0;
  double base_cost_ = 0;

  IdVector<OpId, std::string> op_names_;
  IdVector<OpId, std::string> op_types_;
  IdVector<OpId, std::string> op_attributes_;
  IdVector<OpId, Phase> op_phases_;
  IdVector<OpId, bool> op_recomputable_;
  IdVector<OpId, bool> op_random_;
  IdVector<OpId, ChoiceGroupId> op_choice_groups_;
  Csr<OpId, TensorId> op_inputs_;
  Csr<OpId, TensorId> op_outputs_;
  Csr<OpId, TensorId> op_mutates_;
  std::vector<std::uint32_t> first_variant_{0};  // num_ops + 1 entries

  IdVector<VariantId, std::string> variant_names_;
  IdVector<VariantId, OpId> variant_ops_;
  IdVector<VariantId, double> variant_costs_;
  IdVector<VariantId, double> variant_rerun_costs_;
  IdVector<VariantId, Bytes> variant_workspaces_;
  IdVector<VariantId, double> variant_flops_;
  IdVector<VariantId, double> variant_traffic_;
  IdVector<VariantId, TensorId> variant_overwrites_;
  Csr<VariantId, TensorId> variant_reads_;
  Csr<VariantId, TensorId> variant_makes_;

  IdVector<TensorId, std::string> tensor_names_;
  IdVector<TensorId, std::string> tensor_attributes_;
  IdVector<TensorId, Bytes> tensor_bytes_;
  IdVector<TensorId, TensorKind> tensor_kinds_;
  IdVector<TensorId, OpId> tensor_producers_;
  Csr<TensorId, OpId> tensor_consumers_;
};

}  // namespace regen
