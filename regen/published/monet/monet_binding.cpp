#include "regen/published/monet/monet_binding.h"

#include <algorithm>
#include <charconv>

#include "regen/published/monet/monet_export.h"

namespace regen::published {
namespace {

// The digits in the name of an imported variant: algorithm3, implementation1_in_place.
std::uint32_t number_in(const std::string& name) {
  std::uint32_t number = 0;
  if (!name.starts_with("algorithm") && !name.starts_with("implementation")) return number;
  const std::size_t at = name.find_first_of("0123456789");
  if (at != std::string::npos) {
    std::from_chars(name.data() + at, name.data() + name.size(), number);
  }
  return number;
}

// Tensor i of an imported graph is what node i makes.
void bind_imported(const Graph& graph, MonetBinding& binding) {
  const auto& nodes = binding.instance.nodes;
  const auto is_extra = [&](std::size_t id) {
    return id < nodes.size() && nodes[id].kind == MonetKind::kIntermediate;
  };
  binding.imported = true;
  binding.once.assign(binding.instance.loss + 1, 0);
  for (std::uint32_t id = 0; id < nodes.size(); ++id) {
    auto& choices = binding.choices.emplace_back();
    binding.ops.push_back(is_extra(id) ? OpId::none() : graph.producer(TensorId(id)));
    if (is_extra(id)) continue;
    const OpId op = binding.ops.back();
    for (VariantId v : graph.variants(op)) {
      MonetChoice choice{.choice = v.index() - graph.default_variant(op).index(),
                         .number = number_in(graph.name(v)),
                         .overwrites = graph.overwrites(v).valid(),
                         .extras = {}};
      for (TensorId t : graph.makes(v)) {
        if (is_extra(t.index())) choice.extras.push_back(static_cast<std::uint32_t>(t.index()));
      }
      choices.push_back(std::move(choice));
    }
  }
}

}  // namespace

Result<MonetBinding> bind_monet(const Graph& graph) {
  if (!graph.attributes().empty()) {
    auto instance = monet_from_graph(graph);
    const auto rebuilt = instance.ok() ? graph_from_monet(*instance, "") : instance.error();
    if (rebuilt.ok() && *rebuilt == graph) {
      MonetBinding binding{.instance = std::move(*instance), .ops = {}, .choices = {}, .once = {}};
      bind_imported(graph, binding);
      return binding;
    }
  }
  return export_monet(graph);
}

}  // namespace regen::published
