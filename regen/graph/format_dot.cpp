#include "regen/graph/format_dot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace regen {
namespace {

constexpr std::size_t kMaxLabelledOps = 5000;

// Hue of forward, loss, backward, update.
constexpr std::array<double, 4> kHues{0.58, 0.12, 0.02, 0.33};

// A quoted DOT string. Line breaks and other control characters become spaces.
std::string dot_string(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

Bytes made_bytes(const Graph& graph, OpId op) {
  Bytes bytes = 0;
  for (TensorId t : graph.outputs(op)) bytes += graph.bytes(t);
  return bytes;
}

// From pale for nothing to full for the largest.
std::string fill_colour(Phase phase, Bytes bytes, Bytes largest) {
  const double fraction = std::log1p(static_cast<double>(bytes)) /
                          std::max(std::log1p(static_cast<double>(largest)), 1.0);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f %.3f 1.000", kHues[static_cast<std::size_t>(phase)],
                0.08 + 0.52 * fraction);
  return text.data();
}

}  // namespace

std::string write_dot(const Graph& graph) {
  const bool labelled = graph.num_ops() <= kMaxLabelledOps;
  Bytes largest = 0;
  for (OpId op : graph.ops()) largest = std::max(largest, made_bytes(graph, op));
  std::string out = "digraph " + dot_string(graph.name()) + " {\n";
  out += labelled ? "  node [shape=box, style=filled, fontname=\"sans-serif\"];\n"
                  : "  node [shape=point, style=filled];\n";
  for (OpId op : graph.ops()) {
    const Bytes bytes = made_bytes(graph, op);
    out += "  op" + std::to_string(op.index()) + " [fillcolor=\"" +
           fill_colour(graph.phase(op), bytes, largest) + "\"";
    if (labelled) {
      std::string label = dot_string(graph.name(op));
      label.insert(label.size() - 1, "\\n" + format_bytes(bytes));
      out += ", label=" + label + ", tooltip=" + dot_string(graph.type(op));
    }
    out += "];\n";
  }
  for (TensorId t : graph.tensors()) {
    const OpId maker = graph.producer(t);
    if (!maker.valid()) continue;
    for (OpId reader : graph.consumers(t)) {
      out += "  op" + std::to_string(maker.index()) + " -> op" + std::to_string(reader.index());
      if (labelled) {
        out += " [label=\"" + format_bytes(graph.bytes(t)) +
               "\", tooltip=" + dot_string(graph.name(t)) + "]";
      }
      out += ";\n";
    }
  }
  return out + "}\n";
}

}  // namespace regen
