#include "regen/models/layers/lower.h"

#include <utility>

namespace regen {
namespace {

LayerId append_separable(LayerGraph& lowered, Layer layer) {
  const std::int64_t channels = lowered.channels(layer.inputs[0]);
  Layer depthwise = layer;
  depthwise.kind = LayerKind::kDepthwiseConv2d;
  depthwise.name += "/depthwise";
  depthwise.shape.back() = channels;
  depthwise.groups = channels;
  depthwise.bias = false;
  depthwise.params = {layer.params[0]};
  layer.kind = LayerKind::kConv2d;
  layer.name += "/pointwise";
  layer.kernel = 1;
  layer.stride = 1;
  layer.inputs = {lowered.append(std::move(depthwise))};
  layer.params.erase(layer.params.begin());
  return lowered.append(std::move(layer));
}

}  // namespace

LayerGraph lower(const LayerGraph& net) {
  LayerGraph lowered(net.name());
  for (std::size_t p = 0; p < net.num_params(); ++p) lowered.append_param(net.param(ParamId(p)));
  IdVector<LayerId, LayerId> renamed(net.num_layers());
  const std::vector<LayerId> order = net.order();
  for (LayerId id : order) {
    for (LayerId x : net.layer(id).inputs) {
      if (net.layer(x).kind == LayerKind::kInput && !renamed[x].valid()) {
        renamed[x] = lowered.append(net.layer(x));
      }
    }
  }
  for (LayerId id : order) {
    Layer layer = net.layer(id);
    for (LayerId& x : layer.inputs) x = renamed[x];
    Layer fused{.kind = LayerKind::kActivation, .shape = layer.shape};
    if (layer.kind != LayerKind::kActivation) {
      fused.activation = std::exchange(layer.activation, Activation::kLinear);
      fused.name = layer.name + "/" + std::string(to_string(fused.activation));
    }
    renamed[id] = layer.kind == LayerKind::kSeparableConv2d
                      ? append_separable(lowered, std::move(layer))
                      : lowered.append(std::move(layer));
    if (fused.activation == Activation::kLinear) continue;
    fused.inputs = {renamed[id]};
    renamed[id] = lowered.append(std::move(fused));
  }
  lowered.output(renamed[net.output_layer()], net.loss());
  return lowered;
}

}  // namespace regen
