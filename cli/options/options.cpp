#include "cli/options/options.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <limits>
#include <memory>

#include "regen/base/file.h"
#include "regen/base/progress/progress.h"
#include "regen/base/text.h"
#include "regen/cost/cost_model.h"
#include "regen/graph/cost_range.h"
#include "regen/plan/plan_json.h"
#include "regen/plan/validate.h"
#include "regen/published/checkmate/stage_matrices.h"
#include "regen/published/graph_formats.h"

namespace regen::cli {
namespace {

constexpr std::string_view kZooPrefix = "zoo:";
// More than any graph or plan that regen writes; a larger file is a mistake.
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

Result<Graph> load_zoo_graph(const GraphArgument& argument) {
  const std::string_view text = std::string_view(argument.text).substr(kZooPrefix.size());
  REGEN_ASSIGN(const ZooReference reference, parse_zoo_reference(text));
  return zoo_graph(reference.name, zoo_options(argument, reference.batch));
}

// For a file that cannot be read: what the caller may have had in mind.
std::string what_was_meant(const std::string& path) {
  if (std::filesystem::exists(path + "/program.json")) {
    return "; of a captured step `regen profile " + path + " -o FILE` makes one";
  }
  const auto reference = parse_zoo_reference(path);
  const bool model = reference.ok() && zoo_summary(reference->name).ok();
  return model ? "; a model of the zoo is zoo:" + path : "";
}

Result<Graph> load_file_graph(const GraphArgument& argument) {
  const char* unused = argument.backward    ? "--backward"
                       : argument.rules     ? "--rules"
                       : argument.optimizer ? "--optimizer"
                                            : nullptr;
  if (unused != nullptr) {
    return bad_input(std::string(unused) + " with the file '" + argument.text +
                     "', expected zoo:NAME: a file says itself what its backward pass is");
  }
  const std::string path = argument.text == "-" ? "/dev/stdin" : argument.text;
  Progress progress({.stage = "read", .subject = "the graph"});
  auto read = read_file(path, kMaxFileBytes);
  if (!read.ok()) return Error{read.error().code, read.error().message + what_was_meant(path)};
  const std::string content = std::move(*read);
  progress.say(format_bytes(static_cast<Bytes>(content.size())));
  return published::read_graph(content, argument.text);
}

// The link that `regen profile` measured and wrote into the graph; none in other graphs.
Result<Link> measured_link(const Graph& graph) {
  if (graph.attributes().empty() || graph.cost_unit() != CostUnit::kSecond) return Link{};
  const Json attributes = Json::parse(graph.attributes(), nullptr, /*allow_exceptions=*/false);
  if (!attributes.is_object() || !attributes.contains("link")) return Link{};
  const Json& entry = attributes["link"];
  const auto number = [&](const char* key) {
    const bool there = entry.is_object() && entry.contains(key) && entry[key].is_number();
    return there ? entry[key].get<double>() : 0.0;
  };
  const Link link{number("to_host"), number("to_device"), number("both")};
  if (link.can_move() && link.both >= std::max(link.to_host, link.to_device)) return link;
  return bad_input("graph '" + graph.name() +
                   "': attributes.link: " + on_one_line(entry.dump(), 80) +
                   ", expected to_host and to_device above 0, and both at least each of them");
}

}  // namespace

std::function<Result<std::int64_t>(std::string_view)> whole_number(std::int64_t low,
                                                                   std::int64_t high) {
  return [low, high](std::string_view text) -> Result<std::int64_t> {
    const auto value = parse_int(text);
    if (value.ok() && *value >= low && *value <= high) return *value;
    return bad_input("bad value '" + std::string(text.substr(0, 60)) +
                     "', expected a whole number from " + std::to_string(low) + " to " +
                     std::to_string(high));
  };
}

Result<double> parse_seconds(std::string_view text) {
  const auto seconds = parse_double(text);
  if (seconds.ok() && *seconds >= 0) return *seconds;
  return bad_input("bad time '" + std::string(text.substr(0, 60)) +
                   "', expected seconds, 0 or more");
}

Result<std::vector<std::string>> split_list(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) {
      return bad_input("empty name in '" + std::string(text.substr(0, 60)) +
                       "', expected names separated by commas");
    }
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void add_graph(CLI::App& verb, GraphArgument& argument) {
  verb.add_option("GRAPH", argument.text,
                  "A graph file of any format, - for standard input, or zoo:NAME[@BATCH]")
      ->required()
      ->type_name("");
  add_zoo_options(verb, argument);
  add_cost_options(verb, argument);
}

void add_zoo_options(CLI::App& verb, GraphArgument& argument) {
  add_parsed(verb, "--backward", argument.backward,
             one_of<BackwardStyle>(
                 {{"checkmate", BackwardStyle::kCheckmate}, {"exact", BackwardStyle::kExact}}),
             "STYLE", "Backward pass of a zoo model: checkmate (default) or exact");
  add_parsed(verb, "--rules", argument.rules,
             one_of<FlopRules>({{"default", FlopRules::kDefault},
                                {"artifact", FlopRules::kArtifact},
                                {"correct", FlopRules::kCorrect}}),
             "RULES", "How flop are counted in a zoo model: default, artifact or correct");
  add_parsed(verb, "--optimizer", argument.optimizer,
             one_of<Optimizer>({{"none", Optimizer::kNone},
                                {"sgd", Optimizer::kSgd},
                                {"momentum", Optimizer::kMomentum},
                                {"adam", Optimizer::kAdam}}),
             "NAME", "Update of an exact zoo model: none (default), sgd, momentum or adam");
}

void add_cost_options(CLI::App& verb, GraphArgument& argument) {
  verb.add_option("--cost", argument.cost,
                  "flop, roofline, roofline:fp16, table:FILE, or graph: what the graph carries")
      ->type_name("MODEL");
  verb.add_option("--device", argument.device,
                  "A built-in device or a device file; its roofline is the cost unless --cost")
      ->type_name("NAME");
}

bool names_zoo(std::string_view text) {
  return text.size() >= kZooPrefix.size() &&
         std::equal(kZooPrefix.begin(), kZooPrefix.end(), text.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

ZooOptions zoo_options(const GraphArgument& argument, std::int64_t batch) {
  return {.batch = batch,
          .backward = argument.backward.value_or(BackwardStyle::kCheckmate),
          .rules = argument.rules.value_or(FlopRules::kDefault),
          .optimizer = argument.optimizer.value_or(Optimizer::kNone)};
}

Result<LoadedGraph> load_graph(const GraphArgument& argument) {
  LoadedGraph loaded;
  if (argument.device) {
    REGEN_ASSIGN(loaded.device, find_device(*argument.device));
  }
  REGEN_ASSIGN(loaded.graph,
               names_zoo(argument.text) ? load_zoo_graph(argument) : load_file_graph(argument));
  loaded.label = loaded.graph.name();
  if (const std::size_t at = argument.text.rfind('@');
      names_zoo(argument.text) && at != std::string::npos) {
    loaded.label += ", batch " + argument.text.substr(at + 1);
  }
  const std::string cost = argument.cost.value_or(loaded.device ? "roofline" : "graph");
  if (cost != "graph") {
    REGEN_ASSIGN(const std::unique_ptr<CostModel> model, make_cost_model(cost, loaded.device));
    REGEN_ASSIGN(loaded.graph, apply_costs(loaded.graph, *model));
  }
  if (argument.adds_costs) REGEN_TRY(check_cost_range(loaded.graph));
  if (loaded.device) {
    loaded.link = link_in_unit(*loaded.device, loaded.graph.cost_unit());
  } else if (cost == "graph") {
    REGEN_ASSIGN(loaded.link, measured_link(loaded.graph));
  }
  return loaded;
}

void add_budget(CLI::App& verb, BudgetArgument& argument) {
  CLI::Option* total =
      add_parsed(verb, "--budget", argument.total, ByteAmount::parse, "BYTES",
                 "Device bytes, everything counted: 8GiB, 16e9, 50% of what keeping everything "
                 "takes, or device (its memory)");
  add_parsed(verb, "--activation-budget", argument.activations, parse_bytes, "BYTES",
             "Device bytes without the fixed ones (parameters and the like)")
      ->excludes(total);
  add_parsed(verb, "--host-budget", argument.host, parse_bytes, "BYTES",
             "Host bytes for moved tensors");
}

Result<std::optional<Bytes>> resolve_budget(const BudgetArgument& argument,
                                            const LoadedGraph& loaded) {
  if (argument.activations) {
    return std::optional<Bytes>(loaded.graph.fixed_bytes() + *argument.activations);
  }
  if (!argument.total) return std::optional<Bytes>();
  const auto bytes =
      argument.total->resolve(loaded.graph, loaded.device ? &*loaded.device : nullptr);
  if (!bytes.ok()) return bad_input("--budget: " + bytes.error().message);
  return std::optional<Bytes>(*bytes);
}

void add_threads(CLI::App& verb, std::int64_t& threads) {
  add_parsed(verb, "--threads", threads, whole_number(0, 1024), "N",
             "Threads to use; 0 (default): all cores");
}

void add_json(CLI::App& verb, bool& json) {
  verb.add_flag("--json", json, "Print JSON for programs");
}

void add_output(CLI::App& verb, std::string& path, const std::string& description) {
  verb.add_option("-o,--output", path, description)->type_name("FILE");
}

Result<Plan> load_plan(const std::string& path, const Graph& graph) {
  if (std::filesystem::is_directory(path)) {
    REGEN_ASSIGN(const published::StageMatrices matrices, published::read_stage_matrices(path));
    auto plan = published::plan_from_matrices(graph, matrices);
    if (!plan.ok()) return in_file(path, plan.error());
    return plan;
  }
  REGEN_ASSIGN(const std::string content, read_file(path, kMaxFileBytes));
  return parse_plan(content, path);
}

Result<Plan> load_valid_plan(const std::string& path, const Graph& graph) {
  REGEN_ASSIGN(Plan plan, load_plan(path, graph));
  const auto validation = validate(graph, plan);
  if (!validation.ok()) return in_file(path, validation.error());
  return plan;
}

Error in_file(const std::string& path, const Error& error) {
  return {error.code, path + ": " + error.message};
}

}  // namespace regen::cli
