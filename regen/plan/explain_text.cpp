// How explanations look, for people and for programs.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "regen/plan/explain.h"

namespace regen {
namespace {

// Short enough for a table and free of line breaks, whatever the graph calls its things.
std::string shorten(std::string text) {
  constexpr std::size_t kWidth = 48;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > kWidth) text = text.substr(0, kWidth - 3) + "...";
  return text;
}

std::string show(const Graph& graph, TensorId t) {
  return std::to_string(t.index()) + " '" + shorten(graph.name(t)) + "'";
}

std::string show(const Graph& graph, OpId op) {
  return std::to_string(op.index()) + " '" + shorten(graph.name(op)) + "'";
}

std::string show_step(const Graph& graph, const Plan& plan, std::size_t step) {
  return std::to_string(step) + ": " + shorten(describe(graph, plan.steps[step]));
}

// Rows under a heading, columns aligned; the first column is right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  std::string render() const {
    std::vector<std::size_t> widths(rows_[0].size(), 0);
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
      std::string line = "  " + std::string(widths[0] - row[0].size(), ' ') + row[0];
      for (std::size_t i = 1; i < row.size(); ++i) {
        line += "  " + row[i] + std::string(widths[i] - row[i].size(), ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A titled table of at most `max_rows` items, or nothing for an empty list.
template <typename Item, typename Row>
std::string list_table(const std::string& title, std::vector<std::string> header,
                       const std::vector<Item>& items, std::size_t max_rows, Row row) {
  if (items.empty()) return "";
  Table table(std::move(header));
  const std::size_t shown = std::min(items.size(), max_rows);
  for (std::size_t i = 0; i < shown; ++i) table.add(row(items[i]));
  std::string text = "\n" + title + "\n" + table.render();
  if (shown < items.size()) {
    text += "  and " + std::to_string(items.size() - shown) + " more\n";
  }
  return text;
}

std::string summary(const Graph& graph, const Plan& plan, const Explanation& explanation) {
  std::string text = "peak " + format_grouped(explanation.peak_bytes) + " bytes (" +
                     format_bytes(explanation.peak_bytes) + ") at step " +
                     show_step(graph, plan, explanation.peak_step) + "\n";
  Bytes live = 0;
  for (const LiveTensor& item : explanation.live) live += item.bytes;
  Table table({"bytes", ""});
  table.add({format_grouped(explanation.fixed_bytes), "fixed: inputs, parameters, state"});
  table.add({format_grouped(live), "in " + std::to_string(explanation.live.size()) + " tensors"});
  table.add({format_grouped(explanation.workspace_bytes), "workspace of the op"});
  if (plan.addresses) {
    table.add({format_grouped(explanation.unused_bytes), "unused between addresses"});
  }
  return text + table.render();
}

std::string show_use(const Graph& graph, const Plan& plan, const LiveTensor& item,
                     const std::optional<std::size_t>& step) {
  if (step) return show_step(graph, plan, *step);
  return graph.kind(item.tensor) == TensorKind::kOutput ? "an output of the step" : "none";
}

std::string names(const Graph& graph, const std::vector<TensorId>& tensors) {
  constexpr std::size_t kShown = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(tensors.size(), kShown); ++i) {
    text += (i == 0 ? "tensor " : ", ") + show(graph, tensors[i]) + " (" +
            format_grouped(graph.bytes(tensors[i])) + ")";
  }
  if (tensors.size() > kShown) {
    text += " and " + std::to_string(tensors.size() - kShown) + " more";
  }
  return text;
}

Json optional_json(const std::optional<std::size_t>& step) {
  return step ? Json(*step) : Json(nullptr);
}

}  // namespace

std::string to_text(const Graph& graph, const Plan& plan, const Explanation& explanation,
                    std::size_t max_rows) {
  std::string text = summary(graph, plan, explanation);
  text +=
      list_table("On the device at the peak",
                 {"bytes", "tensor", "came by", "made at step", "next use", "last use"},
                 explanation.live, max_rows, [&](const LiveTensor& item) {
                   return std::vector<std::string>{format_grouped(item.bytes),
                                                   show(graph, item.tensor),
                                                   std::string(to_string(item.origin)),
                                                   show_step(graph, plan, item.made_step),
                                                   show_use(graph, plan, item, item.next_use_step),
                                                   show_use(graph, plan, item, item.last_use_step)};
                 });
  text +=
      list_table("Recomputed", {"times", "op", "cost of the re-runs"}, explanation.recomputed,
                 max_rows, [&](const Recomputed& item) {
                   return std::vector<std::string>{std::to_string(item.times), show(graph, item.op),
                                                   format_cost(item.cost, graph.cost_unit())};
                 });
  text += list_table("Moved", {"bytes", "tensor", "offloads", "fetches"}, explanation.moved,
                     max_rows, [&](const Moved& item) {
                       return std::vector<std::string>{
                           format_grouped(item.bytes), show(graph, item.tensor),
                           std::to_string(item.offloads), std::to_string(item.fetches)};
                     });
  text += list_table("Kept longest", {"steps", "tensor", "bytes", "made at step"}, explanation.kept,
                     max_rows, [&](const Kept& item) {
                       return std::vector<std::string>{
                           std::to_string(item.left_step - item.made_step),
                           show(graph, item.tensor), format_grouped(graph.bytes(item.tensor)),
                           show_step(graph, plan, item.made_step)};
                     });
  return text;
}

Json to_json(const Graph& graph, const Plan& plan, const Explanation& explanation) {
  Json json{{"peak_bytes", explanation.peak_bytes},
            {"fixed_bytes", explanation.fixed_bytes},
            {"workspace_bytes", explanation.workspace_bytes},
            {"unused_bytes", explanation.unused_bytes},
            {"peak_step", explanation.peak_step},
            {"step", describe(graph, plan.steps[explanation.peak_step])},
            {"live", Json::array()},
            {"recomputed", Json::array()},
            {"moved", Json::array()},
            {"kept", Json::array()}};
  for (const LiveTensor& item : explanation.live) {
    json["live"].push_back({{"tensor", item.tensor.index()},
                            {"name", graph.name(item.tensor)},
                            {"bytes", item.bytes},
                            {"origin", to_string(item.origin)},
                            {"made_step", item.made_step},
                            {"made_by", describe(graph, plan.steps[item.made_step])},
                            {"next_use_step", optional_json(item.next_use_step)},
                            {"last_use_step", optional_json(item.last_use_step)}});
  }
  for (const Recomputed& item : explanation.recomputed) {
    json["recomputed"].push_back({{"op", item.op.index()},
                                  {"name", graph.name(item.op)},
                                  {"times", item.times},
                                  {"cost", item.cost}});
  }
  for (const Moved& item : explanation.moved) {
    json["moved"].push_back({{"tensor", item.tensor.index()},
                             {"name", graph.name(item.tensor)},
                             {"offloads", item.offloads},
                             {"fetches", item.fetches},
                             {"bytes", item.bytes}});
  }
  for (const Kept& item : explanation.kept) {
    json["kept"].push_back({{"tensor", item.tensor.index()},
                            {"name", graph.name(item.tensor)},
                            {"made_step", item.made_step},
                            {"left_step", item.left_step}});
  }
  return json;
}

std::string to_text(const Graph& graph, const StructuralBound& bound) {
  const std::string subject = bound.op.valid() ? "op " + show(graph, bound.op) + " needs at least "
                                               : "the outputs of the step need together ";
  std::string text = subject + format_grouped(bound.bytes) + " bytes (" +
                     format_grouped(bound.fixed_bytes) + " fixed, " +
                     format_grouped(bound.workspace_bytes) + " workspace";
  if (!bound.live.empty()) text += ", " + names(graph, bound.live);
  return text + ")";
}

Json to_json(const Graph& graph, const StructuralBound& bound) {
  Json json{{"bytes", bound.bytes},
            {"op", bound.op.valid() ? Json(bound.op.index()) : Json(nullptr)},
            {"op_name", bound.op.valid() ? Json(graph.name(bound.op)) : Json(nullptr)},
            {"fixed_bytes", bound.fixed_bytes},
            {"workspace_bytes", bound.workspace_bytes},
            {"live", Json::array()}};
  for (TensorId t : bound.live) {
    json["live"].push_back(
        {{"tensor", t.index()}, {"name", graph.name(t)}, {"bytes", graph.bytes(t)}});
  }
  return json;
}

}  // namespace regen
