#include "regen/models/zoo.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "regen/models/backward/backward_checkmate.h"

namespace regen {
namespace {

constexpr std::string_view kChainPrefix = "chain:";

std::array<std::span<const ZooEntry>, 4> tables() {
  return {keras_models(), segmentation_models(), modern_models(), synthetic_models()};
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string result = "'";
  for (char c : text.substr(0, kLongest)) {
    result += std::iscntrl(static_cast<unsigned char>(c)) ? '?' : c;  // messages are one line
  }
  return result + (text.size() > kLongest ? "...'" : "'");
}

const ZooEntry* find_entry(std::string_view name) {
  const std::string wanted = lower(name);
  for (const auto& table : tables()) {
    for (const ZooEntry& entry : table) {
      if (lower(entry.name) == wanted) return &entry;
    }
  }
  return nullptr;
}

// Insertions, deletions and replacements of one letter that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

Error unknown_name(std::string_view name) {
  constexpr std::size_t kMaxDistance = 3;
  constexpr std::size_t kMaxMatches = 4;
  // No typing error is this long, and the distance takes time in the product of the lengths.
  const std::string wanted = lower(name.substr(0, 64));
  std::vector<std::pair<std::size_t, std::string>> close;
  for (const auto& table : tables()) {
    for (const ZooEntry& entry : table) {
      const std::size_t distance = edit_distance(wanted, lower(entry.name));
      if (distance <= kMaxDistance) close.emplace_back(distance, entry.name);
    }
  }
  std::sort(close.begin(), close.end());
  std::string message = "zoo: no model is named " + quoted(name) + ", expected ";
  for (std::size_t i = 0; i < std::min(close.size(), kMaxMatches); ++i) {
    message += (i == 0 ? "perhaps " : ", ") + close[i].second;
  }
  message += close.empty() ? "a name that 'regen zoo' lists" : "; 'regen zoo' lists all names";
  return bad_input(std::move(message));
}

// N of "chain:N"; nothing for another name.
std::optional<Result<std::int64_t>> chain_length(std::string_view name) {
  if (!lower(name.substr(0, kChainPrefix.size())).starts_with(kChainPrefix)) return std::nullopt;
  const auto length = parse_int(name.substr(kChainPrefix.size()));
  if (!length.ok() || *length < 1 || *length > kMaxChain) {
    return bad_input("zoo: length in " + quoted(name) + " is not usable, expected chain:N with N " +
                     "from 1 to " + format_grouped(kMaxChain));
  }
  return length;
}

Status check_batch(std::int64_t batch, std::string_view where) {
  if (batch >= 1 && batch <= kMaxBatch) return {};
  return bad_input("zoo: batch " + std::to_string(batch) + " of " + quoted(where) +
                   " is out of range, expected 1 to " + format_grouped(kMaxBatch));
}

Result<Graph> chain_graph(std::int64_t length, const ZooOptions& options) {
  if (options.batch != 1) {
    return bad_input("zoo: chain:" + std::to_string(length) + " at batch " +
                     std::to_string(options.batch) + ", expected batch 1: its ops have unit size");
  }
  return unit_chain_graph(length);
}

Result<Graph> entry_graph(const ZooEntry& entry, const LayerGraph& net, const ZooOptions& options) {
  if (options.backward == BackwardStyle::kExact) {
    return exact_graph(
        net, {.batch = options.batch, .rules = options.rules, .optimizer = options.optimizer});
  }
  if (options.optimizer != Optimizer::kNone) {
    return bad_input("zoo: an optimizer for '" + net.name() +
                     "' with the checkmate backward, expected the exact one");
  }
  FlopRules rules = options.rules;
  if (rules == FlopRules::kDefault) {
    // The artifact never saw sequences: its dense rule would count one token.
    const bool modern = entry.family == std::string_view("modern");
    rules = modern ? FlopRules::kCorrect : FlopRules::kArtifact;
  }
  return checkmate_graph(net, options.batch, rules);
}

}  // namespace

std::vector<ZooInfo> zoo_list() {
  std::vector<ZooInfo> list;
  for (const auto& table : tables()) {
    for (const ZooEntry& entry : table) list.push_back({entry.name, entry.family, entry.input});
  }
  list.push_back({"chain:N", "synthetic", "none"});
  return list;
}

Result<ZooReference> parse_zoo_reference(std::string_view text) {
  const std::size_t at = text.rfind('@');
  ZooReference reference{std::string(text.substr(0, at))};
  if (reference.name.empty()) {
    return bad_input("zoo: " + quoted(text) + " has no model name, expected NAME or NAME@BATCH");
  }
  if (at == std::string_view::npos) return reference;
  const auto batch = parse_int(text.substr(at + 1));
  if (!batch.ok()) {
    return bad_input("zoo: batch " + quoted(text.substr(at + 1)) + " of " + quoted(text) +
                     " is not a whole number, expected 1 to " + format_grouped(kMaxBatch));
  }
  REGEN_TRY(check_batch(*batch, text));
  reference.batch = *batch;
  return reference;
}

Result<LayerGraph> zoo_layers(std::string_view name) {
  const ZooEntry* entry = find_entry(name);
  if (entry == nullptr) {
    if (chain_length(name)) {
      return bad_input("zoo: " + quoted(name) + " has no layers, expected a network");
    }
    return unknown_name(name);
  }
  LayerGraph net = entry->build(entry->variant);
  if (const auto error = net.error()) return *error;
  return net;
}

Result<Graph> zoo_graph(std::string_view name, const ZooOptions& options) {
  REGEN_TRY(check_batch(options.batch, name));
  if (const auto length = chain_length(name)) {
    if (!length->ok()) return length->error();
    return chain_graph(**length, options);
  }
  REGEN_ASSIGN(const LayerGraph net, zoo_layers(name));
  return entry_graph(*find_entry(name), net, options);
}

Result<ZooSummary> zoo_summary(std::string_view name, const ZooOptions& options) {
  REGEN_ASSIGN(const Graph graph, zoo_graph(name, options));
  ZooSummary summary{.name = graph.name(), .family = "synthetic", .input = "none"};
  if (const ZooEntry* entry = find_entry(name)) {
    summary.name = entry->name;
    summary.family = entry->family;
    summary.input = entry->input;
    REGEN_ASSIGN(const LayerGraph net, zoo_layers(name));
    summary.parameters = count_parameters(net);
    summary.layers = static_cast<std::int64_t>(net.order().size());
  } else {
    summary.layers = static_cast<std::int64_t>(graph.num_ops() / 2);
  }
  summary.nodes = static_cast<std::int64_t>(graph.num_ops());
  summary.edges = static_cast<std::int64_t>(graph.num_edges());
  summary.base_cost = graph.base_cost();
  summary.fixed_bytes = graph.fixed_bytes();
  for (OpId op : graph.ops()) {
    if (graph.phase(op) != Phase::kForward) continue;
    summary.forward_cost += graph.cost(graph.default_variant(op));
    for (TensorId t : graph.makes(graph.default_variant(op))) {
      summary.activation_bytes += graph.bytes(t);
    }
  }
  return summary;
}

}  // namespace regen
