#include "tests/support/graphs/random_graph.h"

#include <string>
#include <utility>
#include <vector>

#include "regen/graph/builder.h"

namespace regen::testing {
namespace {

// A forward op with what its backward op needs to know.
struct Layer {
  std::vector<TensorId> inputs;  // planned ones
  std::vector<TensorId> outputs;
  TensorId param;
  TensorId mask;  // none unless some variant makes one
};

class GraphMaker {
 public:
  GraphMaker(Random& random, const RandomGraphOptions& options)
      : random_(random), options_(options), builder_("random") {}

  Graph make() {
    input_ = add_tensor("x", TensorKind::kInput);
    const auto num_layers = random_.between(options_.min_layers, options_.max_layers);
    for (std::int64_t i = 0; i < num_layers; ++i) {
      layers_.push_back(forward());
      if (odd()) view();
    }
    loss();
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      backward(*layer);
      if (odd()) view();
    }
    for (const auto& [param, gradient] : param_gradients_) update(param, gradient);
    return std::move(builder_).build().value();
  }

 private:
  bool odd() { return random_.chance(options_.oddities); }
  double cost() { return static_cast<double>(random_.between(0, options_.max_cost)); }
  Bytes bytes() { return odd() ? 0 : random_.between(1, options_.max_bytes); }

  TensorId add_tensor(const std::string& name, TensorKind kind) {
    const std::string number = std::to_string(builder_.num_tensors());
    const TensorId t = builder_.add_tensor(
        {.name = name + number, .bytes = sizes_.emplace_back(bytes()), .kind = kind});
    if (!is_fixed(kind)) planned_.push_back(t);
    return t;
  }
  TensorId add_planned(const std::string& name, TensorKind kind) {
    return add_tensor(name, odd() ? TensorKind::kOutput : kind);
  }
  TensorId any_planned() {
    return planned_[static_cast<std::size_t>(
        random_.between(0, static_cast<std::int64_t>(planned_.size()) - 1))];
  }

  VariantSpec variant() {
    VariantSpec spec{.cost = cost()};
    if (random_.chance(0.3)) spec.rerun_cost = cost();
    if (random_.chance(0.4)) spec.workspace = bytes();
    return spec;
  }
  // A variant that puts the first output into the place of the first input it fits into.
  void add_in_place(OpSpec& op) {
    for (TensorId t : op.inputs) {
      if (t == input_ || op.outputs.empty()) continue;
      if (sizes_[op.outputs[0].index()] > sizes_[t.index()] || is_param(t)) continue;
      VariantSpec spec = variant();
      spec.overwrites = t;
      if (odd()) op.variants.clear();  // no other way to run it
      op.variants.push_back(std::move(spec));
      return;
    }
  }
  bool is_param(TensorId t) const {
    for (const Layer& layer : layers_) {
      if (layer.param == t) return true;
    }
    return t == new_param_;
  }
  OpSpec op(const std::string& type, Phase phase) {
    return {.name = type + std::to_string(builder_.num_ops()),
            .type = type,
            .phase = phase,
            .recomputable = !odd(),
            .random = odd()};
  }

  Layer forward() {
    Layer layer;
    OpSpec spec = op("forward", Phase::kForward);
    if (!planned_.empty()) layer.inputs.push_back(planned_.back());
    if (!planned_.empty() && random_.chance(0.3)) layer.inputs.push_back(any_planned());
    spec.inputs = layer.inputs;
    if (spec.inputs.empty() || odd()) spec.inputs.push_back(input_);
    new_param_ = TensorId::none();
    if (random_.chance(0.5)) {
      layer.param = new_param_ = add_tensor("w", TensorKind::kParam);
      spec.inputs.push_back(layer.param);
    }
    if (random_.chance(0.2)) layer.outputs.push_back(add_planned("side", TensorKind::kActivation));
    layer.outputs.push_back(add_planned("act", TensorKind::kActivation));
    spec.outputs = layer.outputs;
    spec.variants.push_back(variant());
    if (random_.chance(0.5)) {
      layer.mask = add_tensor("mask", TensorKind::kActivation);
      planned_.pop_back();  // no op reads a mask but the backward
      VariantSpec masked = variant();
      masked.extra_outputs = {layer.mask};
      spec.variants.push_back(std::move(masked));
    }
    // Only after the masked variant: an op that must run in place cannot make its mask.
    if (random_.chance(0.5) && !layer.mask.valid()) add_in_place(spec);
    builder_.add_op(std::move(spec));
    return layer;
  }

  void view() {
    OpSpec spec = op("view", Phase::kForward);
    spec.inputs = {any_planned()};
    spec.variants = {variant()};
    builder_.add_op(std::move(spec));
  }

  void loss() {
    OpSpec spec = op("loss", Phase::kLoss);
    const std::vector<TensorId>& last = layers_.back().outputs;
    spec.inputs = last;
    for (TensorId t : last) gradients_.emplace_back(t, add_planned("grad", TensorKind::kGradient));
    for (const auto& [t, gradient] : gradients_) spec.outputs.push_back(gradient);
    spec.outputs.push_back(add_tensor("loss", TensorKind::kOutput));
    spec.variants = {variant()};
    builder_.add_op(std::move(spec));
  }

  TensorId* gradient_of(TensorId t) {
    for (auto& [tensor, gradient] : gradients_) {
      if (tensor == t) return &gradient;
    }
    return nullptr;
  }

  void backward(const Layer& layer) {
    OpSpec spec = op("backward", Phase::kBackward);
    std::vector<TensorId> given;
    for (TensorId t : layer.outputs) {
      if (const TensorId* gradient = gradient_of(t)) given.push_back(*gradient);
    }
    if (given.empty()) return;
    spec.inputs = given;
    const std::vector<TensorId>& saved = layer.inputs.empty() ? layer.outputs : layer.inputs;
    spec.inputs.insert(spec.inputs.end(), saved.begin(), saved.end());
    std::vector<TensorId> made;
    for (TensorId t : layer.inputs) {
      static_cast<void>(t);
      made.push_back(add_planned("grad", TensorKind::kGradient));
    }
    spec.outputs = made;
    if (layer.param.valid()) {
      const TensorId gradient = add_planned("dw", TensorKind::kGradient);
      spec.inputs.push_back(layer.param);
      spec.outputs.push_back(gradient);
      param_gradients_.emplace_back(layer.param, gradient);
    }
    add_backward_variants(spec, layer, given);
    builder_.add_op(std::move(spec));
    for (std::size_t i = 0; i < made.size(); ++i) accumulate(layer.inputs[i], made[i]);
  }

  void add_backward_variants(OpSpec& spec, const Layer& layer, const std::vector<TensorId>& given) {
    spec.variants.push_back(variant());
    if (random_.chance(0.4)) {
      VariantSpec from_output = variant();
      from_output.reads = given;
      from_output.reads->push_back(layer.outputs.back());
      spec.variants.push_back(std::move(from_output));
    }
    if (layer.mask.valid()) {
      VariantSpec from_mask = variant();
      from_mask.reads = given;
      from_mask.reads->push_back(layer.mask);
      spec.variants.push_back(std::move(from_mask));
    }
    if (random_.chance(0.4)) add_in_place(spec);
  }

  void accumulate(TensorId t, TensorId part) {
    TensorId* sum = gradient_of(t);
    if (sum == nullptr) {
      gradients_.emplace_back(t, part);
      return;
    }
    OpSpec spec = op("add", Phase::kBackward);
    spec.inputs = {*sum, part};
    *sum = add_planned("sum", TensorKind::kGradient);
    spec.outputs = {*sum};
    spec.variants = {variant()};
    add_in_place(spec);
    builder_.add_op(std::move(spec));
  }

  void update(TensorId param, TensorId gradient) {
    const int times = odd() ? 2 : 1;
    for (int i = 0; i < times; ++i) {
      OpSpec spec = op("update", Phase::kUpdate);
      spec.inputs = {gradient};
      if (random_.chance(0.7)) spec.inputs.push_back(param);
      spec.mutates = {param};
      if (random_.chance(0.3)) spec.mutates.push_back(add_tensor("state", TensorKind::kState));
      if (random_.chance(0.2)) spec.outputs = {add_planned("norm", TensorKind::kActivation)};
      spec.variants = {variant()};
      builder_.add_op(std::move(spec));
    }
    if (random_.chance(0.3)) {
      OpSpec spec = op("metric", Phase::kUpdate);
      spec.inputs = {param};
      spec.outputs = {add_planned("metric", TensorKind::kActivation)};
      spec.variants = {variant()};
      builder_.add_op(std::move(spec));
    }
  }

  Random& random_;
  const RandomGraphOptions& options_;
  GraphBuilder builder_;
  TensorId input_;
  TensorId new_param_;
  std::vector<Bytes> sizes_;
  std::vector<TensorId> planned_;
  std::vector<Layer> layers_;
  std::vector<std::pair<TensorId, TensorId>> gradients_;  // (of, gradient)
  std::vector<std::pair<TensorId, TensorId>> param_gradients_;
};

}  // namespace

Graph random_training_graph(Random& random, const RandomGraphOptions& options) {
  return GraphMaker(random, options).make();
}

}  // namespace regen::testing
