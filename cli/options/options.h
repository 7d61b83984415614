// Options that several verbs share, and what they stand for.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options/byte_amount.h"
#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/cost/device.h"
#include "regen/graph/graph.h"
#include "regen/models/zoo.h"
#include "regen/plan/plan.h"

namespace regen::cli {

// An option whose text goes through `parse`; a refusal names the option. `target` must live as
// long as the app.
template <typename T, typename Parse>
CLI::Option* add_parsed(CLI::App& verb, const std::string& names, T& target, Parse parse,
                        const std::string& type, const std::string& description) {
  const auto read = [&target, parse, names](const std::string& text) {
    auto value = parse(std::string_view(text));
    if (!value.ok()) {
      throw CLI::ValidationError(names.substr(names.rfind(',') + 1), value.error().message);
    }
    target = std::move(value).value();
  };
  return verb.add_option_function<std::string>(names, read, description)->type_name(type);
}

// Reads a whole number in [low, high].
std::function<Result<std::int64_t>(std::string_view)> whole_number(std::int64_t low,
                                                                   std::int64_t high);

// Reads seconds, at least 0.
Result<double> parse_seconds(std::string_view text);

// Reads one of the names; the refusal lists them all.
template <typename T>
auto one_of(std::vector<std::pair<std::string, T>> choices) {
  return [choices = std::move(choices)](std::string_view text) -> Result<T> {
    std::string names;
    for (const auto& [name, value] : choices) {
      if (name == text) return value;
      names += (names.empty() ? "" : name == choices.back().first ? " or " : ", ") + name;
    }
    return bad_input("unknown value '" + std::string(text.substr(0, 60)) + "', expected " + names);
  };
}

// "a,b,c" as its parts; empty parts are refused.
Result<std::vector<std::string>> split_list(std::string_view text);

// GRAPH and what changes how it is built or priced.
struct GraphArgument {
  std::string text;  // a path, "-" for standard input, or zoo:NAME[@BATCH]
  std::optional<BackwardStyle> backward;
  std::optional<FlopRules> rules;
  std::optional<Optimizer> optimizer;
  std::optional<std::string> cost;
  std::optional<std::string> device;
  // Costs are to be added up, which only those of a sane size can be (regen/graph/cost_range.h).
  bool adds_costs = true;
};

struct LoadedGraph {
  Graph graph;
  std::string label;  // for people: its name, and its batch if it is of the zoo
  std::optional<Device> device;
  // In the graph's unit: the device's, else what a measured graph carries; else nothing moves.
  Link link;
};

void add_graph(CLI::App& verb, GraphArgument& argument);
void add_zoo_options(CLI::App& verb, GraphArgument& argument);
void add_cost_options(CLI::App& verb, GraphArgument& argument);

// True for zoo:..., letter case ignored.
bool names_zoo(std::string_view text);
Result<LoadedGraph> load_graph(const GraphArgument& argument);
ZooOptions zoo_options(const GraphArgument& argument, std::int64_t batch);

// How many bytes a plan may take.
struct BudgetArgument {
  std::optional<ByteAmount> total;
  std::optional<Bytes> activations;  // without the fixed bytes
  std::optional<Bytes> host;
};

void add_budget(CLI::App& verb, BudgetArgument& argument);

// In bytes with the fixed ones; nothing when the user gave none.
Result<std::optional<Bytes>> resolve_budget(const BudgetArgument& argument,
                                            const LoadedGraph& loaded);

void add_threads(CLI::App& verb, std::int64_t& threads);
void add_json(CLI::App& verb, bool& json);
void add_output(CLI::App& verb, std::string& path, const std::string& description);

// Reads a plan file, or a folder with the matrices of a published planner
// (docs/reference/formats.md); whether it fits the graph is the judges' business.
Result<Plan> load_plan(const std::string& path, const Graph& graph);
// Reads a plan and refuses one that is not valid for the graph.
Result<Plan> load_valid_plan(const std::string& path, const Graph& graph);

// The same error with the file it is about.
Error in_file(const std::string& path, const Error& error);

}  // namespace regen::cli
