#include "regen/models/backward/backward_checkmate.h"

#include <string>
#include <utility>
#include <vector>

#include "regen/graph/builder.h"
#include "regen/models/layers/sizes.h"

namespace regen {
namespace {

constexpr std::int64_t kMaxUnitChain = 1'000'000;

// Layers by their place in the order, as the numbering of ops needs them.
struct Positions {
  std::vector<LayerId> order;
  std::vector<std::vector<std::size_t>> inputs;     // without network inputs
  std::vector<std::vector<std::size_t>> consumers;  // ascending; twice if read twice
};

Positions find_positions(const LayerGraph& net) {
  Positions positions;
  positions.order = net.order();
  const std::size_t n = positions.order.size();
  IdVector<LayerId, std::size_t> place(net.num_layers(), n);
  for (std::size_t i = 0; i < n; ++i) place[positions.order[i]] = i;
  positions.inputs.resize(n);
  positions.consumers.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (LayerId x : net.layer(positions.order[i]).inputs) {
      if (place[x] == n) continue;
      positions.inputs[i].push_back(place[x]);
      positions.consumers[place[x]].push_back(i);
    }
  }
  return positions;
}

class CheckmateBuilder {
 public:
  CheckmateBuilder(const LayerGraph& net, std::int64_t batch, FlopRules rules)
      : net_(net),
        batch_(batch),
        rules_(rules),
        positions_(find_positions(net)),
        n_(positions_.order.size()),
        builder_(net.name()) {}

  Result<Graph> build() && {
    add_tensors();
    for (std::size_t i = 0; i < n_; ++i) add_forward(i);
    builder_.add_op({.name = "loss",
                     .type = "loss",
                     .phase = Phase::kLoss,
                     .inputs = {TensorId(n_ - 1)},
                     .outputs = {TensorId(n_)}});
    for (std::size_t i = n_; i-- > 0;) add_backward(i);
    return std::move(builder_).build();
  }

 private:
  const Layer& layer(std::size_t i) const { return net_.layer(positions_.order[i]); }
  Bytes bytes(std::size_t i) const { return output_bytes(layer(i), batch_); }
  double cost(std::size_t i) const {
    return forward_flops(net_, positions_.order[i], rules_) * static_cast<double>(batch_);
  }
  double parameter_traffic(std::size_t i) const {
    return static_cast<double>(parameter_bytes(net_, positions_.order[i]));
  }

  // All tensors first, so that their ids are the ids of their makers.
  void add_tensors() {
    for (std::size_t i = 0; i < n_; ++i) {
      builder_.add_tensor({.name = layer(i).name, .bytes = bytes(i)});
    }
    builder_.add_tensor({.name = "loss", .bytes = 4 * batch_});
    for (std::size_t i = n_; i-- > 0;) {
      builder_.add_tensor(
          {.name = "grad " + layer(i).name, .bytes = bytes(i), .kind = TensorKind::kGradient});
    }
    const Bytes fixed = bounded_product(4, count_parameters(net_));
    builder_.add_tensor({.name = "parameters", .bytes = fixed, .kind = TensorKind::kParam});
    builder_.add_tensor(
        {.name = "parameter gradients", .bytes = fixed, .kind = TensorKind::kState});
  }

  void add_forward(std::size_t i) {
    std::vector<TensorId> inputs;
    double traffic = static_cast<double>(bytes(i)) + parameter_traffic(i);
    for (std::size_t j : positions_.inputs[i]) inputs.emplace_back(j);
    for (LayerId x : layer(i).inputs) {
      traffic += static_cast<double>(output_bytes(net_.layer(x), batch_));
    }
    builder_.add_op({.name = layer(i).name,
                     .type = std::string(to_string(layer(i).kind)),
                     .phase = Phase::kForward,
                     .inputs = std::move(inputs),
                     .outputs = {TensorId(i)},
                     .random = is_random(layer(i).kind),
                     .variants = {{.cost = cost(i), .flops = cost(i), .traffic = traffic}}});
  }

  void add_backward(std::size_t i) {
    std::vector<TensorId> inputs = {TensorId(i)};
    double traffic = 2 * static_cast<double>(bytes(i)) + 2 * parameter_traffic(i);
    for (std::size_t j : positions_.consumers[i]) {
      inputs.emplace_back(j);
      traffic += 2 * static_cast<double>(bytes(j));
    }
    for (std::size_t j : positions_.consumers[i]) inputs.emplace_back(2 * n_ - j);
    if (i == n_ - 1) inputs.emplace_back(n_);
    builder_.add_op(
        {.name = "grad " + layer(i).name,
         .type = "grad_" + std::string(to_string(layer(i).kind)),
         .phase = Phase::kBackward,
         .inputs = std::move(inputs),
         .outputs = {TensorId(2 * n_ - i)},
         .variants = {{.cost = 2 * cost(i), .flops = 2 * cost(i), .traffic = traffic}}});
  }

  static bool is_random(LayerKind kind) {
    return kind == LayerKind::kDropout || kind == LayerKind::kDropPath;
  }

  const LayerGraph& net_;
  std::int64_t batch_;
  FlopRules rules_;
  Positions positions_;
  std::size_t n_;
  GraphBuilder builder_;
};

}  // namespace

Result<Graph> checkmate_graph(const LayerGraph& net, std::int64_t batch, FlopRules rules) {
  if (const auto error = net.error()) return *error;
  if (batch < 1 || batch > kMaxBytes / 8) {
    return bad_input("model '" + net.name() + "': batch " + std::to_string(batch) +
                     " is out of range, expected at least 1");
  }
  if (rules == FlopRules::kDefault) rules = FlopRules::kArtifact;
  return CheckmateBuilder(net, batch, rules).build();
}

Result<Graph> unit_chain_graph(std::int64_t forward_ops) {
  if (forward_ops < 1 || forward_ops > kMaxUnitChain) {
    return bad_input("chain: " + std::to_string(forward_ops) +
                     " forward ops is out of range, expected 1 to " +
                     std::to_string(kMaxUnitChain));
  }
  const auto n = static_cast<std::size_t>(forward_ops);
  GraphBuilder builder("chain:" + std::to_string(n));
  for (std::size_t i = 0; i <= 2 * n; ++i) {
    const Phase phase = i < n ? Phase::kForward : i == n ? Phase::kLoss : Phase::kBackward;
    std::vector<TensorId> inputs;
    if (i > 0) inputs.emplace_back(i - 1);
    if (i > n) inputs.emplace_back(2 * n - i);
    const std::string name = i < n    ? "node " + std::to_string(i)
                             : i == n ? "loss"
                                      : "grad " + std::to_string(2 * n - i);
    builder.add_simple_op(name, "unit", phase, std::move(inputs), 1,
                          i > n ? TensorKind::kGradient : TensorKind::kActivation, 1);
  }
  return std::move(builder).build();
}

}  // namespace regen
