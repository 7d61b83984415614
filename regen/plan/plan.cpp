#include "regen/plan/plan.h"

#include <array>

#include "regen/base/text.h"

namespace regen {

std::string_view to_string(StepKind kind) {
  constexpr std::array<std::string_view, 4> kNames{"compute", "offload", "release", "fetch"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string describe(const Graph& graph, const Step& step) {
  std::string text(to_string(step.kind()));
  if (step.kind() == StepKind::kCompute) {
    text += " " + std::to_string(step.op().index());
    if (step.op().index() < graph.num_ops()) text += " " + in_quotes(graph.name(step.op()));
    if (step.choice() > 0) text += " variant " + std::to_string(step.choice());
  } else {
    text += " " + std::to_string(step.tensor().index());
    if (step.tensor().index() < graph.num_tensors())
      text += " " + in_quotes(graph.name(step.tensor()));
  }
  return text;
}

}  // namespace regen
