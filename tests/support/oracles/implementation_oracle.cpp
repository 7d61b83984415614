#include "tests/support/oracles/implementation_oracle.h"

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "regen/graph/builder.h"

namespace regen::testing {
namespace {

class Paths {
 public:
  Paths(const Graph& graph, Bytes budget, bool outputs_stay)
      : graph_(graph), budget_(budget - graph.fixed_bytes()), outputs_stay_(outputs_stay) {
    bit_.assign(graph.num_tensors(), 0);
    for (TensorId t : graph.tensors()) {
      if (graph.fixed(t)) continue;
      bit_[t.index()] = 1U << sizes_.size();
      sizes_.push_back(graph.bytes(t));
      if (graph.kind(t) == TensorKind::kOutput) outputs_ |= bit_[t.index()];
    }
  }

  std::optional<double> cheapest() {
    offer({0, 0}, 0);
    while (!queue_.empty()) {
      const auto [cost, place] = queue_.top();
      queue_.pop();
      if (cost > best_[place]) continue;
      if (place.second == graph_.num_ops() && (place.first & outputs_) == outputs_) return cost;
      leave(place, cost);
    }
    return std::nullopt;
  }

 private:
  using Place = std::pair<std::uint32_t, std::size_t>;  // on the device; ops that have run

  void offer(const Place& place, double cost) {
    const auto [known, is_new] = best_.emplace(place, cost);
    if (!is_new && known->second <= cost) return;
    known->second = cost;
    queue_.emplace(cost, place);
  }

  Bytes bytes(std::uint32_t here) const {
    Bytes sum = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) sum += (here >> i & 1) != 0 ? sizes_[i] : 0;
    return sum;
  }

  // Has a later op changed what the variant reads?
  bool changed_since(VariantId v, std::size_t ran) const {
    for (std::size_t later = graph_.op(v).index() + 1; later < ran; ++later) {
      for (TensorId t : graph_.mutates(OpId(later))) {
        for (TensorId read : graph_.reads(v)) {
          if (read == t) return true;
        }
      }
    }
    return false;
  }

  void leave(const Place& place, double cost) {
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const std::uint32_t bit = 1U << i;
      if (outputs_stay_ && (bit & outputs_) != 0) continue;
      if ((place.first & bit) != 0) offer({place.first & ~bit, place.second}, cost);
    }
    for (std::size_t i = 0; i < graph_.num_ops() && i <= place.second; ++i) {
      const OpId op(i);
      const bool again = i < place.second;
      if (again && (!graph_.recomputable(op) || !graph_.mutates(op).empty())) continue;
      for (VariantId v : graph_.variants(op)) run(place, cost, v, again);
    }
  }

  void run(const Place& place, double cost, VariantId v, bool again) {
    if (again && changed_since(v, place.second)) return;
    for (TensorId t : graph_.reads(v)) {
      if (!graph_.fixed(t) && (place.first & bit_[t.index()]) == 0) return;
    }
    const TensorId old = graph_.overwrites(v);
    const auto makes = graph_.makes(v);
    std::uint32_t here = place.first;
    for (std::size_t k = old.valid() ? 1 : 0; k < makes.size(); ++k) here |= bit_[makes[k].index()];
    if (bytes(here) + graph_.workspace(v) > budget_) return;
    if (old.valid()) {
      if ((place.first & bit_[makes[0].index()]) != 0) return;
      if (outputs_stay_ && graph_.kind(old) == TensorKind::kOutput) return;
      here = (here & ~bit_[old.index()]) | bit_[makes[0].index()];
      if (bytes(here) > budget_) return;
    }
    const double more = again ? graph_.rerun_cost(v) : graph_.cost(v);
    offer({here, place.second + (again ? 0 : 1)}, cost + more);
  }

  const Graph& graph_;
  const Bytes budget_;
  const bool outputs_stay_;
  std::vector<std::uint32_t> bit_;  // by tensor; 0 for fixed ones
  std::vector<Bytes> sizes_;        // by bit
  std::uint32_t outputs_ = 0;
  std::map<Place, double> best_;
  using Entry = std::pair<double, Place>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

std::optional<double> cheapest_over_variants(const Graph& graph, Bytes budget, bool outputs_stay) {
  return Paths(graph, budget, outputs_stay).cheapest();
}

Graph random_graph_with_implementations(Random& random, int layers, Bytes unit) {
  GraphBuilder builder("implementations");
  const auto bytes = [&](std::int64_t low, std::int64_t high) {
    return unit * random.between(low, high);
  };
  const auto number = [&](std::int64_t low, std::int64_t high) {
    return static_cast<double>(random.between(low, high));
  };
  struct Layer {
    TensorId in, out, mask;
  };
  std::vector<Layer> made;
  TensorId last = builder.add_tensor({"x", 4 * unit, TensorKind::kInput});
  for (int i = 0; i < layers; ++i) {
    Layer layer{.in = last, .out = {}, .mask = {}};
    const std::string name = "f" + std::to_string(i);
    layer.out = builder.add_tensor({name, bytes(3, 12)});
    OpSpec op{.name = name, .type = "op", .inputs = {last}, .outputs = {layer.out}};
    if (made.size() > 1 && random.chance(0.3)) op.inputs.push_back(made[made.size() - 2].out);
    op.variants = {{.name = "plain", .cost = number(1, 9)}};
    if (random.chance(0.5)) {
      layer.mask = builder.add_tensor({name + ".mask", bytes(0, 2)});
      op.variants.push_back({.name = "masked",
                             .cost = op.variants[0].cost + number(0, 2),
                             .extra_outputs = {layer.mask}});
    }
    if (random.chance(0.3)) op.variants[0].workspace = bytes(1, 6);
    builder.add_op(std::move(op));
    made.push_back(layer);
    last = layer.out;
  }
  TensorId gradient = builder.add_simple_op("loss", "loss", Phase::kLoss, {last}, bytes(2, 8),
                                            TensorKind::kGradient, 1);
  for (std::size_t i = made.size(); i-- > 0;) {
    const Layer& layer = made[i];
    const TensorId given = gradient;
    const std::string name = "b" + std::to_string(i);
    gradient = builder.add_tensor(
        {name, bytes(2, 8), i == 0 ? TensorKind::kOutput : TensorKind::kGradient});
    OpSpec op{.name = name,
              .type = "op",
              .phase = Phase::kBackward,
              .inputs = {given, layer.in},
              .outputs = {gradient}};
    op.variants = {{.name = "input", .cost = number(1, 9), .reads = {{given, layer.in}}}};
    if (random.chance(0.5)) {
      op.inputs.push_back(layer.out);
      op.variants.push_back({.name = "output",
                             .cost = op.variants[0].cost + number(-1, 2),
                             .reads = {{given, layer.out}}});
    }
    if (layer.mask.valid()) {
      op.inputs.push_back(layer.mask);
      op.variants.push_back({.name = "mask",
                             .cost = op.variants[0].cost + number(0, 2),
                             .reads = {{given, layer.mask}}});
    }
    builder.add_op(std::move(op));
  }
  return std::move(builder).build().value();
}

}  // namespace regen::testing
