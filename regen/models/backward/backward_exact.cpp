// Forward ops, loss, updates, and the choice of in-place variants; what each layer's backward
// reads is in exact_rules.cpp.
#include "regen/models/backward/backward_exact.h"

#include <array>
#include <utility>

#include "regen/models/backward/exact_builder.h"
#include "regen/models/layers/lower.h"
#include "regen/models/layers/sizes.h"

namespace regen {
namespace {

bool is_view(LayerKind kind) {
  return kind == LayerKind::kFlatten || kind == LayerKind::kReshape;
}

// Ops that write each element where they read it.
bool is_elementwise(const Layer& layer) {
  switch (layer.kind) {
    case LayerKind::kActivation:
      return layer.activation != Activation::kSoftmax;
    case LayerKind::kAdd:
    case LayerKind::kMultiply:
    case LayerKind::kDropout:
    case LayerKind::kDropPath:
    case LayerKind::kAddParameter:
    case LayerKind::kScale:
    case LayerKind::kRotary:
      return true;
    default:
      return false;
  }
}

std::string op_type(const Layer& layer) {
  return std::string(layer.kind == LayerKind::kActivation ? to_string(layer.activation)
                                                          : to_string(layer.kind));
}

}  // namespace

ExactBuilder::ExactBuilder(const LayerGraph& net, const ExactOptions& options)
    : net_(net),
      batch_(options.batch),
      rules_(options.rules == FlopRules::kDefault ? FlopRules::kCorrect : options.rules),
      optimizer_(options.optimizer),
      builder_(net.name()),
      needs_gradient_(net.num_layers(), false),
      storage_(net.num_layers()),
      saved_(net.num_layers()),
      gradients_(net.num_layers()),
      params_(net.num_params()),
      uses_(net.num_params(), 0),
      param_gradients_(net.num_params()) {}

double ExactBuilder::work(LayerId id) const {
  return forward_flops(net_, id, rules_) * static_cast<double>(batch_);
}

Bytes ExactBuilder::batch_bytes(std::int64_t per_sample) const {
  return bounded_product(per_sample, batch_);
}

TensorId ExactBuilder::tensor(std::string name, Bytes bytes, TensorKind kind) {
  bytes_.push_back(bytes);
  fixed_.push_back(is_fixed(kind));
  return builder_.add_tensor({.name = std::move(name), .bytes = bytes, .kind = kind});
}

void ExactBuilder::draft(Draft draft) {
  if (draft.traffic == 0) {
    for (TensorId t : draft.op.inputs) draft.traffic += static_cast<double>(bytes_[t.index()]);
    for (TensorId t : draft.op.outputs) draft.traffic += static_cast<double>(bytes_[t.index()]);
  }
  drafts_.push_back(std::move(draft));
}

// The in-place variant exists only where the overwritten tensor has no other reader: then
// choosing it never takes away what another op needs.
void ExactBuilder::emit(const Draft& draft, const std::vector<std::size_t>& readers) {
  OpSpec op = draft.op;
  VariantSpec plain{
      .name = "default", .cost = draft.cost, .flops = draft.cost, .traffic = draft.traffic};
  op.variants = {plain};
  for (TensorId t : draft.overwritable) {
    if (fixed_[t.index()] || readers[t.index()] != 1) continue;
    if (bytes_[t.index()] != bytes_[op.outputs[0].index()]) continue;
    VariantSpec in_place = plain;
    in_place.name = "in_place";
    in_place.overwrites = t;
    op.variants.push_back(std::move(in_place));
    break;
  }
  builder_.add_op(std::move(op));
}

void ExactBuilder::add_fixed_tensors() {
  for (std::size_t i = 0; i < net_.num_layers(); ++i) {
    const LayerId id(i);
    if (layer(id).kind == LayerKind::kInput) {
      storage_[id] = tensor(layer(id).name, output_bytes(layer(id), batch_), TensorKind::kInput);
    }
    for (ParamId p : layer(id).params) {
      if (uses_[p]++ > 0) continue;
      const Parameter& param = net_.param(p);
      params_[p] = tensor(param.name, bounded_product(param.count, 4),
                          param.trainable ? TensorKind::kParam : TensorKind::kState);
    }
  }
  const Layer& last = layer(net_.output_layer());
  const std::int64_t channels = last.shape.empty() ? 1 : last.shape.back();
  const Bytes bytes = net_.loss() == Loss::kMeanSquare
                          ? output_bytes(last, batch_)
                          : batch_bytes(8 * (num_elements(last.shape) / channels));
  targets_ = tensor("targets", bytes, TensorKind::kInput);
}

// What the backward pass needs besides inputs and outputs.
TensorId ExactBuilder::add_saved(LayerId id) {
  const Layer& l = layer(id);
  const std::int64_t count = num_elements(l.shape);
  const std::int64_t channels = l.shape.empty() ? 1 : l.shape.back();
  const std::int64_t rows = count / channels;
  Bytes bytes = 0;
  const char* role = "statistics";
  switch (l.kind) {
    case LayerKind::kBatchNorm:
      bytes = 8 * channels;
      break;  // mean and 1/deviation, any batch
    case LayerKind::kLayerNorm:
      bytes = batch_bytes(8 * rows);
      break;
    case LayerKind::kRmsNorm:
      bytes = batch_bytes(4 * rows);
      break;
    case LayerKind::kGroupNorm:
      bytes = batch_bytes(8 * l.groups);
      break;
    case LayerKind::kMaxPool2d:
      bytes = batch_bytes(8 * count), role = "indices";
      break;
    case LayerKind::kDropout:
      bytes = batch_bytes(count), role = "mask";
      break;
    case LayerKind::kDropPath:
      bytes = batch_bytes(4), role = "mask";
      break;
    case LayerKind::kAttention:
      bytes = batch_bytes(4 * rows * l.heads), role = "logsumexp";
      break;
    default:
      return TensorId::none();
  }
  return tensor(l.name + "/" + role, bytes, TensorKind::kActivation);
}

void ExactBuilder::add_forward(LayerId id) {
  const Layer& l = layer(id);
  Draft d{.op = {.name = l.name, .type = op_type(l), .phase = Phase::kForward}, .cost = work(id)};
  for (LayerId x : l.inputs) {
    d.op.inputs.push_back(storage(x));
    needs_gradient_[id] = needs_gradient_[id] || needs_gradient_[x];
  }
  for (ParamId p : l.params) {
    // Running statistics are written by an op of their own, so that this one can run again.
    if (net_.param(p).trainable) d.op.inputs.push_back(params_[p]);
    needs_gradient_[id] = needs_gradient_[id] || net_.param(p).trainable;
  }
  if (is_view(l.kind)) {
    storage_[id] = storage(l.inputs[0]);
    d.op.inputs.resize(1);
    draft(std::move(d));
    return;
  }
  if (is_elementwise(l)) {
    for (LayerId x : l.inputs) d.overwritable.push_back(storage(x));
  }
  storage_[id] = tensor(l.name, output_bytes(l, batch_), TensorKind::kActivation);
  saved_[id] = add_saved(id);
  d.op.outputs = {storage_[id]};
  if (saved_[id].valid()) d.op.outputs.push_back(saved_[id]);
  d.op.random = l.kind == LayerKind::kDropout || l.kind == LayerKind::kDropPath;
  // A lookup reads only the rows it needs.
  if (l.kind == LayerKind::kEmbedding) d.traffic = 8 * elements(storage_[id]);
  draft(std::move(d));
  if (l.kind == LayerKind::kBatchNorm) add_statistics_update(id);
}

void ExactBuilder::add_statistics_update(LayerId id) {
  const Layer& l = layer(id);
  Draft d{.op = {.name = l.name + "/update_statistics",
                 .type = "update_statistics",
                 .phase = Phase::kForward,
                 .inputs = {saved_[id]}}};
  for (ParamId p : l.params) {
    if (net_.param(p).trainable) continue;
    d.op.inputs.push_back(params_[p]);
    d.op.mutates.push_back(params_[p]);
    d.cost += 3 * static_cast<double>(net_.param(p).count);  // old, new and their sum
  }
  draft(std::move(d));
}

void ExactBuilder::add_loss() {
  const LayerId last = net_.output_layer();
  const TensorId value = tensor("loss", 4, TensorKind::kOutput);
  Draft d{.op = {.name = "loss",
                 .type = "loss",
                 .phase = Phase::kLoss,
                 .inputs = {storage(last), targets_},
                 .outputs = {value}}};
  switch (net_.loss()) {
    case Loss::kCrossEntropy:
      log_probabilities_ =
          tensor("loss/log_probabilities", bytes_[storage(last).index()], TensorKind::kActivation);
      d.op.outputs.push_back(log_probabilities_);
      d.cost = 5 * elements(storage(last));
      break;
    case Loss::kMeanSquare:
      d.cost = 3 * elements(storage(last));
      break;
    default:
      d.cost = elements(targets_);
      break;  // a logarithm and a sum for each 8-byte target
  }
  draft(std::move(d));
}

void ExactBuilder::add_loss_gradient() {
  const LayerId last = net_.output_layer();
  const TensorId g = new_gradient(last);
  const TensorId basis = log_probabilities_.valid() ? log_probabilities_ : storage(last);
  draft({.op = {.name = "grad loss",
                .type = "grad_loss",
                .phase = Phase::kBackward,
                .inputs = {basis, targets_},
                .outputs = {g}},
         .cost = 2 * elements(g)});
  contribute(last, g);
}

void ExactBuilder::add_updates() {
  if (optimizer_ == Optimizer::kNone) return;
  constexpr std::array<const char*, 4> kTypes = {"", "sgd", "momentum", "adam"};
  constexpr std::array<int, 4> kStates = {0, 0, 1, 2};
  constexpr std::array<double, 4> kSteps = {0, 2, 4, 12};  // for each number of the parameter
  const auto kind = static_cast<std::size_t>(optimizer_);
  for (std::size_t i = 0; i < net_.num_params(); ++i) {
    const ParamId p(i);
    if (param_gradients_[p].empty()) continue;
    const std::string& name = net_.param(p).name;
    Draft d{.op = {.name = "update " + name,
                   .type = kTypes[kind],
                   .phase = Phase::kUpdate,
                   .inputs = {params_[p], param_gradients_[p].back()},
                   .mutates = {params_[p]}},
            .cost = kSteps[kind] * elements(params_[p])};
    for (int s = 0; s < kStates[kind]; ++s) {
      const TensorId state = tensor(name + "/" + kTypes[kind] + std::to_string(s + 1),
                                    bytes_[params_[p].index()], TensorKind::kState);
      d.op.inputs.push_back(state);
      d.op.mutates.push_back(state);
    }
    draft(std::move(d));
  }
}

Result<Graph> ExactBuilder::build() && {
  add_fixed_tensors();
  for (std::size_t i = 0; i < net_.num_layers(); ++i) {
    if (layer(LayerId(i)).kind != LayerKind::kInput) add_forward(LayerId(i));
  }
  add_loss();
  if (!needs_gradient_[net_.output_layer()]) {
    return bad_input("model '" + net_.name() + "' has no trainable parameter, expected one");
  }
  add_loss_gradient();
  for (std::size_t i = net_.num_layers(); i-- > 0;) {
    if (needs_gradient_[LayerId(i)]) add_backward(LayerId(i));
  }
  add_updates();

  // A view looks at a tensor without using its values: only its readers count.
  std::vector<std::size_t> readers(bytes_.size(), 0);
  for (const Draft& d : drafts_) {
    if (d.op.outputs.empty() && d.op.mutates.empty()) continue;
    for (TensorId t : d.op.inputs) ++readers[t.index()];
  }
  for (const Draft& d : drafts_) emit(d, readers);
  return std::move(builder_).build();
}

Result<Graph> exact_graph(const LayerGraph& net, const ExactOptions& options) {
  if (const auto error = net.error()) return *error;
  if (options.batch < 1 || options.batch > kMaxBytes) {
    return bad_input("model '" + net.name() + "': batch " + std::to_string(options.batch) +
                     " is out of range, expected at least 1");
  }
  const LayerGraph lowered = lower(net);
  return ExactBuilder(lowered, options).build();
}

}  // namespace regen
