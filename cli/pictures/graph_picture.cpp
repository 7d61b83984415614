#include "cli/pictures/graph_picture.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace regen::cli {
namespace {

// In points, with room for a box of two lines.
constexpr int kColumnWidth = 230;
constexpr int kRowHeight = 64;

bool on_the_left(const Graph& graph, OpId op) {
  return graph.phase(op) == Phase::kForward || graph.phase(op) == Phase::kLoss;
}

// Rows from the top: forward ops by the longest way from the first one, the others by the longest
// way to the last one, each counted on its own side.
std::vector<int> rows(const Graph& graph) {
  std::vector<int> row(graph.num_ops(), 0);
  const auto each_edge = [&](OpId op, auto visit) {
    for (TensorId t : graph.inputs(op)) {
      const OpId maker = graph.producer(t);
      if (maker.valid() && on_the_left(graph, maker) == on_the_left(graph, op)) visit(maker);
    }
  };
  for (OpId op : graph.ops()) {
    if (!on_the_left(graph, op)) continue;
    each_edge(op, [&](OpId maker) {
      row[op.index()] = std::max(row[op.index()], row[maker.index()] + 1);
    });
  }
  for (std::size_t i = graph.num_ops(); i-- > 0;) {
    const OpId op(i);
    if (on_the_left(graph, op)) continue;
    each_edge(op, [&](OpId maker) {
      row[maker.index()] = std::max(row[maker.index()], row[op.index()] + 1);
    });
  }
  return row;
}

}  // namespace

std::string with_positions(const Graph& graph, std::string dot) {
  const std::vector<int> row = rows(graph);
  std::map<std::pair<bool, int>, int> used;  // columns of a row, for each side
  std::vector<int> column(graph.num_ops());
  int left_columns = 1;
  for (OpId op : graph.ops()) {
    column[op.index()] = used[{on_the_left(graph, op), row[op.index()]}]++;
    if (on_the_left(graph, op)) left_columns = std::max(left_columns, column[op.index()] + 1);
  }
  dot.erase(dot.rfind('}'));
  for (OpId op : graph.ops()) {
    // The left side is filled towards the right one, so that a chain stands next to its gradients.
    const int place = on_the_left(graph, op) ? left_columns - 1 - column[op.index()]
                                             : left_columns + 1 + column[op.index()];
    dot += "  op" + std::to_string(op.index()) + " [pos=\"" + std::to_string(place * kColumnWidth) +
           "," + std::to_string(-row[op.index()] * kRowHeight) + "\"];\n";
  }
  return dot + "}\n";
}

}  // namespace regen::cli
