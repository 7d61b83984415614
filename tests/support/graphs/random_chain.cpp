#include "tests/support/graphs/random_chain.h"

#include <algorithm>
#include <string>
#include <utility>

#include "regen/graph/builder.h"

namespace regen::testing {
namespace {

class ChainMaker {
 public:
  ChainMaker(Random& random, const RandomChainOptions& options)
      : random_(random), options_(options), builder_("random chain") {}

  RandomChain make() {
    input_ = add("input", TensorKind::kInput);
    const auto num_layers = random_.between(1, options_.max_layers);
    for (std::int64_t i = 0; i < num_layers; ++i) forward();
    gradient_ = add("grad", TensorKind::kGradient);
    chain_.loss = builder_.add_op({.name = "loss",
                                   .type = "loss",
                                   .phase = Phase::kLoss,
                                   .inputs = {chain_.layers.back().value},
                                   .outputs = {gradient_},
                                   .variants = {variant()}});
    for (std::size_t i = chain_.layers.size(); i-- > 0;) backward(i);
    chain_.graph = std::move(builder_).build().value();
    return std::move(chain_);
  }

 private:
  TensorId add(const std::string& name, TensorKind kind) {
    sizes_.push_back(random_.chance(0.15) ? 0 : random_.between(1, 20));
    return builder_.add_tensor(
        {.name = name + std::to_string(sizes_.size()), .bytes = sizes_.back(), .kind = kind});
  }
  VariantSpec variant() {
    VariantSpec spec{.cost = static_cast<double>(random_.between(0, 9))};
    if (random_.chance(0.2)) spec.rerun_cost = static_cast<double>(random_.between(0, 9));
    if (random_.chance(0.3)) spec.workspace = random_.between(0, 20);
    return spec;
  }
  void add_in_place(OpSpec& op, TensorId old) {
    if (!options_.in_place || op.outputs.empty() || random_.chance(0.5)) return;
    if (sizes_[op.outputs[0].index()] > sizes_[old.index()]) return;
    VariantSpec spec = op.variants[0];
    spec.overwrites = old;
    op.variants.push_back(std::move(spec));
  }

  void forward() {
    ChainLayer layer;
    const bool first = chain_.layers.empty();
    OpSpec op{.name = "forward " + std::to_string(chain_.layers.size()),
              .type = "forward",
              .inputs = {first ? input_ : chain_.layers.back().value}};
    layer.value = add("value", TensorKind::kActivation);
    op.outputs = {layer.value};
    if (random_.chance(0.4)) {
      layer.mask = add("mask", TensorKind::kActivation);
      op.outputs.push_back(layer.mask);
    }
    layer.reads_input = !first && random_.chance(0.5);
    layer.reads_value = random_.chance(0.5);
    layer.reads_mask = layer.mask.valid() && random_.chance(0.8);
    op.variants = {variant()};
    if (!first) add_in_place(op, op.inputs[0]);
    layer.forward = builder_.add_op(std::move(op));
    chain_.layers.push_back(layer);
  }

  void backward(std::size_t i) {
    ChainLayer& layer = chain_.layers[i];
    OpSpec op{.name = "backward " + std::to_string(i),
              .type = "backward",
              .phase = Phase::kBackward,
              .inputs = {gradient_}};
    if (layer.reads_input) op.inputs.push_back(chain_.layers[i - 1].value);
    if (layer.reads_value) op.inputs.push_back(layer.value);
    if (layer.reads_mask) op.inputs.push_back(layer.mask);
    const TensorId old = gradient_;
    gradient_ = add("grad", TensorKind::kGradient);
    op.outputs = {gradient_};
    if (random_.chance(0.3)) op.outputs.push_back(add("weights", TensorKind::kOutput));
    op.variants = {variant()};
    add_in_place(op, random_.chance(0.5) ? old : op.inputs.back());
    layer.backward = builder_.add_op(std::move(op));
  }

  Random& random_;
  const RandomChainOptions& options_;
  GraphBuilder builder_;
  std::vector<Bytes> sizes_;
  TensorId input_;
  TensorId gradient_;
  RandomChain chain_;
};

}  // namespace

RandomChain::Parts RandomChain::parts() const {
  const std::size_t n = layers.size();
  Parts parts{.early = std::vector<std::vector<OpId>>(n),
              .late = std::vector<std::vector<OpId>>(n)};
  std::vector<OpId>* at = &parts.late[n - 1];
  at->push_back(loss);
  for (std::size_t i = n; i-- > 0;) {
    const ChainLayer& layer = layers[i];
    if (layer.reads_mask || (layer.reads_input && layer.reads_value)) {
      at = &parts.late[i];
    } else if (layer.reads_input) {
      at = &parts.early[i - 1];
    } else if (layer.reads_value && i + 1 < n) {
      at = &parts.early[i];
    }
    at->push_back(layer.backward);
  }
  return parts;
}

RandomChain random_chain(Random& random, const RandomChainOptions& options) {
  return ChainMaker(random, options).make();
}

}  // namespace regen::testing
