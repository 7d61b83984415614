// The modules of a network as a tree, and which of them each op and each tensor belongs to.
//
// A captured step says for each op in which module it ran (attributes `module` and `source`).
// Elsewhere the forward ops are the modules, their names read as paths ("h0/mlp/fc1"), and a
// backward or update op belongs to the forward op whose name its own begins with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regen/graph/graph.h"

namespace regen::report {

using ModuleId = Id<struct ModuleTag>;

struct ModuleTree {
  // The first is the whole network; parents stand before their children.
  IdVector<ModuleId, std::string> names;   // the last part of the path
  IdVector<ModuleId, std::string> paths;   // as the user's code writes it; "" for the network
  IdVector<ModuleId, ModuleId> parents;    // none for the first
  IdVector<OpId, ModuleId> of_op;          // never none
  IdVector<TensorId, ModuleId> of_tensor;  // its maker's; of a fixed tensor, by its name
  IdVector<OpId, std::string> sources;     // lines of the user's code, or empty

  ModuleId root() const { return ModuleId(0); }
  std::size_t size() const { return names.size(); }
};

// Where ops of an update, and those that no module contains, are put.
inline constexpr std::string_view kUpdateModule = "(optimizer step)";
inline constexpr std::string_view kOutsideModule = "(outside of modules)";

ModuleTree module_tree(const Graph& graph);

}  // namespace regen::report
