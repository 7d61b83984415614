// Looks into a graph by names, so that expectations read as sentences.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "regen/graph/graph.h"

namespace regen {

class GraphProbe {
 public:
  explicit GraphProbe(const Graph& graph) : graph_(graph) {}

  std::vector<std::string> op_names() const {
    std::vector<std::string> names;
    for (OpId op : graph_.ops()) names.push_back(graph_.name(op));
    return names;
  }
  OpId op(const std::string& name) const {
    for (OpId op : graph_.ops()) {
      if (graph_.name(op) == name) return op;
    }
    ADD_FAILURE() << "no op is named " << name;
    return OpId(0);
  }
  TensorId tensor(const std::string& name) const {
    for (TensorId t : graph_.tensors()) {
      if (graph_.name(t) == name) return t;
    }
    ADD_FAILURE() << "no tensor is named " << name;
    return TensorId(0);
  }
  std::vector<std::string> reads(const std::string& name) const {
    return names(graph_.inputs(op(name)));
  }
  std::vector<std::string> makes(const std::string& name) const {
    return names(graph_.outputs(op(name)));
  }
  Bytes bytes(const std::string& name) const { return graph_.bytes(tensor(name)); }
  double cost(const std::string& name) const {
    return graph_.cost(graph_.default_variant(op(name)));
  }
  // The tensor that the op's in-place variant overwrites; empty without such a variant.
  std::string overwrites(const std::string& name) const {
    for (VariantId v : graph_.variants(op(name))) {
      if (graph_.overwrites(v).valid()) return graph_.name(graph_.overwrites(v));
    }
    return "";
  }

 private:
  std::vector<std::string> names(std::span<const TensorId> tensors) const {
    std::vector<std::string> result;
    for (TensorId t : tensors) result.push_back(graph_.name(t));
    return result;
  }

  const Graph& graph_;
};

}  // namespace regen
