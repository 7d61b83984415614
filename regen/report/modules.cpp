#include "regen/report/modules.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "regen/base/json.h"
#include "regen/report/label.h"

namespace regen::report {
namespace {

// A path from a hostile file must not become a tree of a million levels, nor a label of megabytes.
constexpr std::size_t kMostLevels = 24;
constexpr std::size_t kLongestPath = 300;

struct Place {
  std::optional<std::string> module;
  std::string source;
};

Place place_in_attributes(const std::string& attributes) {
  Place place;
  if (attributes.empty()) return place;
  const Json json = Json::parse(attributes, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key) -> std::optional<std::string> {
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return std::nullopt;
    return label(json[key].get_ref<const std::string&>(), kLongestPath);
  };
  place.module = text("module");
  place.source = text("source").value_or("");
  return place;
}

// "grad h5/mlp/input" and "update h5/mlp/kernel" as what follows the first word.
std::string_view without_verb(std::string_view name) {
  for (const std::string_view verb : {"grad ", "update ", "update_"}) {
    if (name.starts_with(verb)) return name.substr(verb.size());
  }
  return name;
}

class TreeMaker {
 public:
  explicit TreeMaker(const Graph& graph) : graph_(graph) {
    tree_.names.push_back("");
    tree_.paths.push_back("");
    tree_.parents.push_back(ModuleId());
    known_.emplace("", tree_.root());
  }

  ModuleTree make() && {
    read_attributes();
    const bool says =
        std::ranges::any_of(places_, [](const Place& p) { return p.module.has_value(); });
    separator_ = says ? '.' : '/';
    if (says) {
      for (const Place& place : places_) {
        if (place.module) module_at(*place.module);
      }
    } else {
      for (const OpId op : graph_.ops()) {
        if (is_forward(op)) module_at(label(graph_.name(op), kLongestPath));
      }
    }
    place_tensors(/*fixed=*/true);
    for (const OpId op : graph_.ops()) tree_.of_op.push_back(module_of(op));
    place_tensors(/*fixed=*/false);
    for (Place& place : places_) tree_.sources.push_back(std::move(place.source));
    return std::move(tree_);
  }

 private:
  void read_attributes() {
    for (const OpId op : graph_.ops()) {
      places_.push_back(place_in_attributes(graph_.attributes(op)));
    }
  }

  bool is_forward(OpId op) const {
    return graph_.phase(op) == Phase::kForward || graph_.phase(op) == Phase::kLoss;
  }

  // The module of a path; it and those above it are added where they are not known.
  ModuleId module_at(const std::string& path) {
    const auto found = known_.find(path);
    if (found != known_.end()) return found->second;
    ModuleId parent = tree_.root();
    std::size_t begin = 0;
    for (std::size_t level = 0; begin < path.size(); ++level) {
      const std::size_t cut =
          level + 1 < kMostLevels ? path.find(separator_, begin) : std::string::npos;
      const std::size_t end = std::min(cut, path.size());
      if (end > begin) parent = child(parent, path.substr(begin, end - begin), path.substr(0, end));
      begin = end + 1;
    }
    return known_.emplace(path, parent).first->second;
  }

  ModuleId child(ModuleId parent, std::string name, const std::string& path) {
    const auto found = known_.find(path);
    if (found != known_.end()) return found->second;
    tree_.names.push_back(std::move(name));
    tree_.paths.push_back(path);
    const ModuleId made = tree_.parents.push_back(parent);
    known_.emplace(path, made);
    return made;
  }

  // The known module whose path the name begins with, the longest of them; none: there is none.
  ModuleId module_by_name(std::string_view name) const {
    std::string prefix = label(without_verb(name), kLongestPath);
    while (!prefix.empty()) {
      if (const auto found = known_.find(prefix); found != known_.end()) return found->second;
      const std::size_t cut = prefix.find_last_of("./");
      prefix.resize(cut == std::string::npos ? 0 : cut);
    }
    return ModuleId();
  }

  void place_tensors(bool fixed) {
    tree_.of_tensor.resize(graph_.num_tensors(), tree_.root());
    for (const TensorId t : graph_.tensors()) {
      if (graph_.fixed(t) != fixed) continue;
      const ModuleId by_name = fixed ? module_by_name(graph_.name(t)) : ModuleId();
      tree_.of_tensor[t] = !fixed            ? tree_.of_op[graph_.producer(t)]
                           : by_name.valid() ? by_name
                                             : tree_.root();
    }
  }

  ModuleId module_of(OpId op) {
    if (const auto& module = places_[op].module) return module_at(*module);
    if (graph_.phase(op) == Phase::kUpdate) return module_at(std::string(kUpdateModule));
    const ModuleId by_name = module_by_name(graph_.name(op));
    if (by_name.valid()) return by_name;
    for (const TensorId t : graph_.mutates(op)) {
      if (tree_.of_tensor[t] != tree_.root()) return tree_.of_tensor[t];
    }
    return module_at(std::string(kOutsideModule));
  }

  const Graph& graph_;
  ModuleTree tree_;
  IdVector<OpId, Place> places_;
  std::unordered_map<std::string, ModuleId> known_;  // by path
  char separator_ = '/';
};

}  // namespace

ModuleTree module_tree(const Graph& graph) {
  return TreeMaker(graph).make();
}

}  // namespace regen::report
