// The order in which Keras lists the layers of a functional model.
#include <algorithm>
#include <limits>

#include "regen/models/layers/layers.h"

namespace regen {
namespace {

constexpr std::size_t kUnseen = std::numeric_limits<std::size_t>::max();

// Numbers the ancestors of `output` in the order a depth-first walk first meets them, inputs
// taken in argument order.
IdVector<LayerId, std::size_t> visit_numbers(const LayerGraph& net, LayerId output) {
  IdVector<LayerId, std::size_t> number(net.num_layers(), kUnseen);
  std::size_t next = 0;
  std::vector<LayerId> stack = {output};
  while (!stack.empty()) {
    const LayerId x = stack.back();
    stack.pop_back();
    if (number[x] != kUnseen) continue;
    number[x] = next++;
    const auto& inputs = net.layer(x).inputs;
    stack.insert(stack.end(), inputs.rbegin(), inputs.rend());
  }
  return number;
}

}  // namespace

std::vector<LayerId> LayerGraph::order() const {
  if (error()) return {};
  const auto number = visit_numbers(*this, output_);
  // A layer's inputs have lower ids, so one falling sweep sees every consumer first.
  IdVector<LayerId, std::size_t> depth(num_layers(), 0);
  std::vector<LayerId> layers;
  for (std::size_t i = num_layers(); i-- > 0;) {
    const LayerId x(i);
    if (number[x] == kUnseen) continue;
    for (LayerId input : layer(x).inputs) depth[input] = std::max(depth[input], depth[x] + 1);
    if (layer(x).kind != LayerKind::kInput) layers.push_back(x);
  }
  std::sort(layers.begin(), layers.end(), [&](LayerId a, LayerId b) {
    return depth[a] != depth[b] ? depth[a] > depth[b] : number[a] < number[b];
  });
  return layers;
}

}  // namespace regen
