#include "regen/published/graph_formats.h"

#include <algorithm>
#include <array>

#include "regen/base/json.h"
#include "regen/base/text.h"
#include "regen/graph/format_dot.h"
#include "regen/graph/format_regen.h"
#include "regen/published/lower_sets/format/format_lower_sets.h"
#include "regen/published/monet/format/format_monet.h"

namespace regen::published {
namespace {

constexpr std::array<std::string_view, 4> kNames{"regen", "lower-sets", "monet", "dot"};
constexpr std::string_view kExpected =
    "a regen graph (JSON), lower-set text or a MONeT instance (JSON)";

// Which JSON format a key at the top of the document belongs to.
std::optional<GraphFormat> format_of_key(std::string_view key) {
  for (std::string_view own : {"format", "version", "tensors", "ops", "cost_unit"}) {
    if (key == own) return GraphFormat::kRegen;
  }
  for (std::string_view own : {"nodes", "loss", "edges", "conv_list", "bs", "mode"}) {
    if (key == own) return GraphFormat::kMonet;
  }
  return std::nullopt;
}

// Looks through the keys of the outermost object without parsing the values.
std::optional<GraphFormat> recognise_json(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') continue;
    const std::size_t start = i + 1;
    for (++i; i < text.size() && text[i] != '"'; ++i) {
      if (text[i] == '\\') ++i;
    }
    if (depth != 1) continue;
    const std::size_t next = text.find_first_not_of(" \t\r\n", std::min(i + 1, text.size()));
    if (next == std::string_view::npos || text[next] != ':') continue;
    if (const auto format = format_of_key(text.substr(start, i - start))) return format;
  }
  return std::nullopt;
}

bool begins_with_word(std::string_view text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  const std::string_view rest = text.substr(word.size());
  return rest.empty() || std::string_view(" \t\r\n{\"").find(rest[0]) != std::string_view::npos;
}

}  // namespace

std::string_view to_string(GraphFormat format) {
  return kNames[static_cast<std::size_t>(format)];
}

Result<GraphFormat> parse_format(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found != kNames.end()) return static_cast<GraphFormat>(found - kNames.begin());
  return bad_input("unknown graph format " + in_quotes(name) +
                   ", expected regen, lower-sets, monet or dot");
}

std::optional<GraphFormat> format_of_path(std::string_view path) {
  if (path.ends_with(".json")) return GraphFormat::kRegen;
  if (path.ends_with(".txt")) return GraphFormat::kLowerSets;
  if (path.ends_with(".dot") || path.ends_with(".gv")) return GraphFormat::kDot;
  return std::nullopt;
}

Result<GraphFormat> recognise_format(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    return bad_input("an empty text found, expected " + std::string(kExpected));
  }
  text.remove_prefix(first);
  if (text[0] >= '0' && text[0] <= '9') return GraphFormat::kLowerSets;
  for (std::string_view word : {"digraph", "graph", "strict"}) {
    if (begins_with_word(text, word)) return GraphFormat::kDot;
  }
  if (text[0] == '{') {
    if (const auto format = recognise_json(text)) return *format;
    return bad_input("a JSON text without the fields of a graph found, expected " +
                     std::string(kExpected));
  }
  const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size()));
  return bad_input("a text that begins with " + in_quotes(line) + " found, expected " +
                   std::string(kExpected));
}

Result<Graph> read_graph(std::string_view text, const std::string& source) {
  const auto format = recognise_format(text);
  if (!format.ok()) return bad_input(source + ": " + format.error().message);
  switch (*format) {
    case GraphFormat::kRegen:
      return read_regen_graph(text, source);
    case GraphFormat::kLowerSets: {
      REGEN_ASSIGN(const LowerSetFile file, read_lower_set_file(text, source));
      return graph_from_lower_sets(file, source);
    }
    case GraphFormat::kMonet: {
      REGEN_ASSIGN(const MonetInstance instance, read_monet_instance(text, source));
      return graph_from_monet(instance, source);
    }
    case GraphFormat::kDot:
      break;
  }
  return bad_input(source + ": a DOT drawing found, which can be written only; expected " +
                   std::string(kExpected));
}

Result<std::string> write_graph(const Graph& graph, GraphFormat format) {
  switch (format) {
    case GraphFormat::kRegen:
      return write_regen_graph(graph);
    case GraphFormat::kLowerSets: {
      REGEN_ASSIGN(const LowerSetFile file, lower_sets_from_graph(graph));
      return write_lower_set_file(file);
    }
    case GraphFormat::kMonet: {
      REGEN_ASSIGN(const MonetInstance instance, monet_from_graph(graph));
      return write_monet_instance(instance);
    }
    case GraphFormat::kDot:
      break;
  }
  return write_dot(graph);
}

}  // namespace regen::published
