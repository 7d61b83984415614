#include "regen/graph/batch_scaling.h"

#include <string>
#include <utility>

#include "regen/base/json.h"
#include "regen/base/text.h"
#include "regen/graph/builder.h"

namespace regen {
namespace {

class Scaling {
 public:
  Scaling(const Graph& graph, std::int64_t from, std::int64_t to)
      : graph_(graph), from_(from), to_(to), grows_(graph.num_tensors(), true) {
    for (TensorId t : graph.tensors()) {
      const TensorKind kind = graph.kind(t);
      grows_[t] = kind != TensorKind::kParam && kind != TensorKind::kState;
    }
    for (OpId op : graph.ops()) {
      if (graph.phase(op) != Phase::kUpdate) continue;
      for (TensorId t : graph.inputs(op)) grows_[t] = false;
      for (TensorId t : graph.outputs(op)) grows_[t] = false;
    }
  }

  Result<Graph> scaled() const {
    GraphBuilder builder(graph_.name(), graph_.cost_unit());
    for (TensorId t : graph_.tensors()) {
      TensorSpec spec = graph_.tensor_spec(t);
      if (grows_[t]) {
        REGEN_ASSIGN(spec.bytes, scaled_bytes(spec.bytes));
      }
      builder.add_tensor(std::move(spec));
    }
    for (OpId op : graph_.ops()) {
      OpSpec spec = graph_.op_spec(op);
      if (spec.phase != Phase::kUpdate) REGEN_TRY(scale(spec));
      builder.add_op(std::move(spec));
    }
    return std::move(builder).build();
  }

 private:
  double factor() const { return static_cast<double>(to_) / static_cast<double>(from_); }

  // Rounded up.
  Result<Bytes> scaled_bytes(Bytes bytes) const {
    if (static_cast<double>(bytes) * factor() > static_cast<double>(kMaxBytes)) {
      return bad_input("graph '" + graph_.name() + "' at batch " + std::to_string(to_) +
                       ": a tensor of " + std::to_string(bytes) + " bytes at batch " +
                       std::to_string(from_) + " would be too large, expected at most 8 PiB");
    }
    return bytes / from_ * to_ + (bytes % from_ * to_ + from_ - 1) / from_;
  }

  Status scale(OpSpec& op) const {
    for (VariantSpec& variant : op.variants) {
      variant.cost *= factor();
      if (variant.rerun_cost) *variant.rerun_cost *= factor();
      variant.flops *= factor();
      variant.traffic *= factor();
      REGEN_ASSIGN(variant.workspace, scaled_bytes(variant.workspace));
    }
    return {};
  }

  const Graph& graph_;
  const std::int64_t from_;
  const std::int64_t to_;
  IdVector<TensorId, bool> grows_;
};

}  // namespace

Result<std::optional<std::int64_t>> stated_batch(const Graph& graph) {
  if (graph.attributes().empty()) return std::optional<std::int64_t>();
  const Json attributes = Json::parse(graph.attributes(), nullptr, /*allow_exceptions=*/false);
  if (!attributes.is_object() || !attributes.contains("batch")) {
    return std::optional<std::int64_t>();
  }
  const Json& batch = attributes["batch"];
  constexpr std::int64_t kLargest = 1'000'000;
  if (batch.is_number_integer() && batch >= 1 && batch <= kLargest) {
    return std::optional(batch.get<std::int64_t>());
  }
  return bad_input("graph '" + graph.name() + "': attributes.batch: " +
                   on_one_line(batch.dump(), 80) + ", expected a whole number from 1 to 1000000");
}

Result<Graph> at_batch(const Graph& graph, std::int64_t from, std::int64_t to) {
  return Scaling(graph, from, to).scaled();
}

}  // namespace regen
