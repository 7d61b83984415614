#include "regen/report/graph_json.h"

#include <string>
#include <unordered_map>

#include "regen/graph/analysis.h"
#include "regen/plan/explain.h"
#include "regen/report/category.h"
#include "regen/report/label.h"

namespace regen::report {
namespace {

// Texts that repeat, each once; others refer to them by their place.
class Texts {
 public:
  std::size_t place_of(const std::string& text) {
    const auto [found, added] = places_.emplace(text, texts_.size());
    if (added) texts_.push_back(text);
    return found->second;
  }
  Json json() const { return texts_; }

 private:
  std::unordered_map<std::string, std::size_t> places_;
  std::vector<std::string> texts_;
};

template <typename Id>
Json id_or_null(Id id) {
  return id.valid() ? Json(id.index()) : Json(nullptr);
}

Json ops_json(const Graph& graph, const ModuleTree& tree) {
  Json names = Json::array();
  Json types = Json::array();
  Json phases = Json::array();
  Json modules = Json::array();
  Json sources = Json::array();
  Texts texts;
  for (const OpId op : graph.ops()) {
    names.push_back(label(graph.name(op)));
    types.push_back(texts.place_of(label(graph.type(op))));
    phases.push_back(static_cast<int>(graph.phase(op)));
    modules.push_back(tree.of_op[op].index());
    sources.push_back(texts.place_of(tree.sources[op]));
  }
  return {{"name", names},     {"type", types},     {"phase", phases},
          {"module", modules}, {"source", sources}, {"texts", texts.json()}};
}

Json tensors_json(const Graph& graph, const ModuleTree& tree) {
  Json names = Json::array();
  Json bytes = Json::array();
  Json kinds = Json::array();
  Json fixed = Json::array();
  Json modules = Json::array();
  Json makers = Json::array();
  const IdVector<TensorId, Category> found = categories(graph);
  for (const TensorId t : graph.tensors()) {
    names.push_back(label(graph.name(t)));
    bytes.push_back(graph.bytes(t));
    kinds.push_back(static_cast<int>(found[t]));
    fixed.push_back(graph.fixed(t) ? 1 : 0);
    modules.push_back(tree.of_tensor[t].index());
    makers.push_back(id_or_null(graph.producer(t)));
  }
  return {{"name", names},  {"bytes", bytes},    {"category", kinds},
          {"fixed", fixed}, {"module", modules}, {"maker", makers}};
}

Json modules_json(const ModuleTree& tree) {
  Json parents = Json::array();
  for (const ModuleId parent : tree.parents) parents.push_back(id_or_null(parent));
  return {{"name", tree.names.raw()}, {"path", tree.paths.raw()}, {"parent", parents}};
}

Json category_names() {
  Json names = Json::array();
  for (std::size_t i = 0; i < kNumCategories; ++i) {
    names.push_back(to_string(static_cast<Category>(i)));
  }
  return names;
}

}  // namespace

Json graph_json(const Graph& graph, const ModuleTree& tree) {
  return {{"name", label(graph.name())},
          {"cost_unit", to_string(graph.cost_unit())},
          {"base_cost", graph.base_cost()},
          {"fixed_bytes", graph.fixed_bytes()},
          {"structural_bound_bytes", structural_bound(graph).bytes},
          {"keep_all_bytes", live_bytes_keep_all(graph).peak_bytes},
          {"phases", {"forward", "loss", "backward", "update"}},
          {"categories", category_names()},
          {"ops", ops_json(graph, tree)},
          {"tensors", tensors_json(graph, tree)},
          {"modules", modules_json(tree)}};
}

}  // namespace regen::report
