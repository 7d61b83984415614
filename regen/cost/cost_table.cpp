#include "regen/cost/cost_table.h"

#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "regen/base/json_fields.h"
#include "regen/base/text.h"

namespace regen {
namespace {

constexpr std::string_view kFormat = "regen-cost-table";
constexpr std::int64_t kMaxIndex = Id<struct OpTag>::kNoneValue - 1;

// The length in front keeps two names apart whatever characters they hold.
std::string name_key(const std::string& op, const std::string& variant) {
  return std::to_string(op.size()) + ":" + op + variant;
}

std::string index_key(OpId op, const std::string& variant) {
  return "#" + std::to_string(op.index()) + ":" + variant;
}

std::string key_of(const CostTableEntry& entry) {
  return entry.index.valid() ? index_key(entry.index, entry.variant)
                             : name_key(entry.op, entry.variant);
}

std::string describe(const CostTableEntry& entry) {
  std::string text = "op " + in_quotes(entry.op);
  if (entry.index.valid()) text += " index " + std::to_string(entry.index.index());
  return entry.variant.empty() ? text : text + " variant " + in_quotes(entry.variant);
}

std::string describe(const Graph& graph, VariantId v) {
  const OpId op = graph.op(v);
  return describe({.op = graph.name(op), .variant = graph.name(v), .index = op});
}

bool valid_seconds(const OpCost& cost) {
  return std::isfinite(cost.first) && cost.first >= 0 && std::isfinite(cost.rerun) &&
         cost.rerun >= 0;
}

Error bad_seconds(const std::string& where, const OpCost& cost) {
  return bad_input(where + ": cost " + format_exact(cost.first) + " and rerun cost " +
                   format_exact(cost.rerun) + " found, expected seconds not below 0");
}

class TableModel final : public CostModel {
 public:
  explicit TableModel(CostTable table) : table_(std::move(table)) {
    for (const CostTableEntry& entry : table_.entries) seconds_[key_of(entry)] = entry.seconds;
  }

  CostUnit unit() const override { return CostUnit::kSecond; }

  Status check(const Graph& graph) const override {
    for (const CostTableEntry& entry : table_.entries) {
      if (!entry.index.valid()) continue;
      if (entry.index.index() >= graph.num_ops()) {
        return bad_input("cost table: " + describe(entry) + ": the graph " +
                         in_quotes(graph.name()) + " has only " + std::to_string(graph.num_ops()) +
                         " ops, expected a table made for this graph");
      }
      if (graph.name(entry.index) != entry.op) {
        return bad_input("cost table: " + describe(entry) + ": in the graph " +
                         in_quotes(graph.name()) + " this op is " +
                         in_quotes(graph.name(entry.index)) +
                         ", expected a table made for this graph");
      }
    }
    return {};
  }

  Result<OpCost> cost(const Graph& graph, VariantId v) const override {
    const OpId op = graph.op(v);
    for (const std::string& key :
         {index_key(op, graph.name(v)), name_key(graph.name(op), graph.name(v))}) {
      if (const auto found = seconds_.find(key); found != seconds_.end()) return found->second;
    }
    if (table_.fallback) return *table_.fallback;
    return bad_input("cost table: no entry for " + describe(graph, v) + " of the graph " +
                     in_quotes(graph.name()) + ", expected one, or a default");
  }

 private:
  CostTable table_;
  std::unordered_map<std::string, OpCost> seconds_;
};

Result<OpCost> parse_seconds(const JsonCursor& view) {
  OpCost cost;
  REGEN_TRY(read_number(view, "cost", cost.first));
  cost.rerun = cost.first;
  if (has_field(view, "rerun_cost")) REGEN_TRY(read_number(view, "rerun_cost", cost.rerun));
  return cost;
}

Result<CostTableEntry> parse_entry(const JsonCursor& view) {
  REGEN_TRY(refuse_unknown_fields(view, {"op", "variant", "index", "cost", "rerun_cost"}));
  CostTableEntry entry;
  REGEN_TRY(read_text(view, "op", entry.op));
  if (has_field(view, "variant")) REGEN_TRY(read_text(view, "variant", entry.variant));
  if (has_field(view, "index")) {
    REGEN_ASSIGN(const JsonCursor index, required_field(view, "index"));
    REGEN_ASSIGN(const std::int64_t number, index.whole(0, kMaxIndex));
    entry.index = OpId(static_cast<std::size_t>(number));
  }
  REGEN_ASSIGN(entry.seconds, parse_seconds(view));
  return entry;
}

void write_seconds(Json& object, const OpCost& cost) {
  object["cost"] = cost.first;
  if (cost.rerun != cost.first) object["rerun_cost"] = cost.rerun;
}

}  // namespace

Status check_cost_table(const CostTable& table, const std::string& source) {
  if (table.fallback && !valid_seconds(*table.fallback)) {
    return bad_seconds(source + ": default", *table.fallback);
  }
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < table.entries.size(); ++i) {
    const CostTableEntry& entry = table.entries[i];
    const std::string where = source + ": entries[" + std::to_string(i) + "]";
    if (!valid_seconds(entry.seconds)) return bad_seconds(where, entry.seconds);
    if (!seen.insert(key_of(entry)).second) {
      return bad_input(where + ": a second entry for " + describe(entry) +
                       ", expected at most one");
    }
  }
  return {};
}

Result<CostTable> parse_cost_table(std::string_view text, const std::string& source) {
  REGEN_ASSIGN(const Json document, parse_json(text, source));
  const JsonCursor root(document, source);
  REGEN_TRY(check_format(root, kFormat, 1));
  REGEN_TRY(refuse_unknown_fields(root, {"format", "version", "device", "default", "entries"}));
  CostTable table;
  if (has_field(root, "device")) REGEN_TRY(read_text(root, "device", table.device));
  if (has_field(root, "default")) {
    REGEN_ASSIGN(const JsonCursor fallback, required_field(root, "default"));
    REGEN_TRY(refuse_unknown_fields(fallback, {"cost", "rerun_cost"}));
    REGEN_ASSIGN(table.fallback, parse_seconds(fallback));
  }
  REGEN_ASSIGN(const JsonCursor entries, required_field(root, "entries"));
  REGEN_ASSIGN(const std::size_t size, entries.array_size());
  table.entries.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(CostTableEntry entry, parse_entry(entries.item(i)));
    table.entries.push_back(std::move(entry));
  }
  REGEN_TRY(check_cost_table(table, source));
  return table;
}

std::string write_cost_table(const CostTable& table) {
  Json document;
  document["format"] = kFormat;
  document["version"] = 1;
  if (!table.device.empty()) document["device"] = table.device;
  if (table.fallback) write_seconds(document["default"], *table.fallback);
  Json entries = Json::array();
  for (const CostTableEntry& entry : table.entries) {
    Json object;
    object["op"] = entry.op;
    if (!entry.variant.empty()) object["variant"] = entry.variant;
    if (entry.index.valid()) object["index"] = entry.index.index();
    write_seconds(object, entry.seconds);
    entries.push_back(std::move(object));
  }
  document["entries"] = std::move(entries);
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::unique_ptr<CostModel>> make_table_model(CostTable table) {
  REGEN_TRY(check_cost_table(table, "cost table"));
  return std::unique_ptr<CostModel>(std::make_unique<TableModel>(std::move(table)));
}

}  // namespace regen
