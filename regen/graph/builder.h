// Makes a Graph, checking as it goes. The first mistake is kept and returned by build();
// what is added after it is ignored, so callers need not test every call.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "regen/graph/graph.h"

namespace regen {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name, CostUnit unit = CostUnit::kFlop);

  void set_attributes(std::string attributes) { graph_.attributes_ = std::move(attributes); }

  // Bytes must be in [0, kMaxBytes], also summed over all tensors.
  TensorId add_tensor(TensorSpec spec);

  // Inputs must be fixed or already made; outputs must be unmade and not fixed. Without
  // variants the op gets one of cost 0. Repeated inputs are kept once. Variants of an op in a
  // choice group may differ in cost and workspace alone.
  OpId add_op(OpSpec spec);

  // A tensor with this name and its maker in one call, for ops with one output and one variant.
  TensorId add_simple_op(std::string name, std::string type, Phase phase,
                         std::vector<TensorId> inputs, Bytes output_bytes, TensorKind kind,
                         double cost);

  const std::optional<Error>& error() const { return error_; }
  std::size_t num_ops() const { return graph_.num_ops(); }
  std::size_t num_tensors() const { return graph_.num_tensors(); }

  // Fails with the first mistake, when a planned tensor has no maker, or when the members of a
  // choice group differ in their number of variants.
  Result<Graph> build() &&;

 private:
  void fail(std::string message);
  bool check_readable(const OpSpec& op, TensorId t, const char* role);
  bool check_outputs(const OpSpec& op, const std::vector<TensorId>& outputs, OpId id);
  bool check_variant(const OpSpec& op, const VariantSpec& variant);
  bool check_mutates(const OpSpec& op);
  bool check_choice(const OpSpec& op);
  void check_choice_groups();
  void append_variant(const OpSpec& op, VariantSpec variant, OpId id);
  std::string describe(TensorId t) const;

  Graph graph_;
  Bytes total_bytes_ = 0;
  std::optional<Error> error_;
};

}  // namespace regen
