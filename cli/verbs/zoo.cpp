// regen zoo: list the models, show one, or write one as a graph.
#include <optional>
#include <string>

#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/verbs/verbs.h"
#include "regen/base/file.h"
#include "regen/models/zoo.h"
#include "regen/published/graph_formats.h"

namespace regen::cli {
namespace {

struct ZooArguments {
  std::string name;
  std::optional<std::int64_t> batch;
  GraphArgument graph;
  std::string output;
  std::optional<published::GraphFormat> format;
  bool json = false;
};

const char* backward_name(const ZooArguments& arguments) {
  return arguments.graph.backward == BackwardStyle::kExact ? "exact" : "checkmate";
}

Json summary_json(const ZooSummary& summary, const ZooArguments& arguments, std::int64_t batch) {
  return {{"name", summary.name},
          {"family", summary.family},
          {"input", summary.input},
          {"batch", batch},
          {"backward", backward_name(arguments)},
          {"layers", summary.layers},
          {"nodes", summary.nodes},
          {"edges", summary.edges},
          {"parameters", summary.parameters},
          {"forward_cost", json_number(summary.forward_cost)},
          {"base_cost", json_number(summary.base_cost)},
          {"cost_unit", "flop"},
          {"activation_bytes", summary.activation_bytes},
          {"fixed_bytes", summary.fixed_bytes}};
}

// chain:N stands for a pattern, not for a model.
bool is_pattern(const ZooInfo& info) {
  return info.name.find(":N") != std::string::npos;
}

Status list_models(const ZooArguments& arguments) {
  const std::int64_t batch = arguments.batch.value_or(1);
  const ZooOptions options = zoo_options(arguments.graph, batch);
  Json array = Json::array();
  Table table({{"model"},
               {"family"},
               {"input"},
               {"layers", Table::Align::kRight},
               {"parameters", Table::Align::kRight}});
  for (const ZooInfo& info : zoo_list()) {
    if (is_pattern(info)) {
      table.add({info.name, info.family, info.input, "N", "0"});
      if (arguments.json) {
        array.push_back({{"name", info.name}, {"family", info.family}, {"input", info.input}});
      }
      continue;
    }
    REGEN_ASSIGN(const ZooSummary summary, zoo_summary(info.name, options));
    if (arguments.json) array.push_back(summary_json(summary, arguments, batch));
    table.add({info.name, info.family, info.input, std::to_string(summary.layers),
               format_grouped(summary.parameters)});
  }
  return arguments.json ? print_json(array) : print(table.text());
}

Status show_model(const ZooSummary& summary, const ZooArguments& arguments, std::int64_t batch) {
  if (arguments.json) return print_json(summary_json(summary, arguments, batch));
  return print(facts({
      {"model", summary.name + " (" + summary.family + "), input " + summary.input + ", batch " +
                    std::to_string(batch)},
      {"graph", std::to_string(summary.nodes) + " ops and " + std::to_string(summary.edges) +
                    " edges from " + std::to_string(summary.layers) + " layers, " +
                    backward_name(arguments) + " backward pass"},
      {"parameters", format_grouped(summary.parameters)},
      {"cost", full_cost(summary.base_cost, CostUnit::kFlop) + ", of it forward " +
                   full_cost(summary.forward_cost, CostUnit::kFlop)},
      {"activations", full_bytes(summary.activation_bytes)},
      {"fixed", full_bytes(summary.fixed_bytes)},
  }));
}

Status run_zoo(const ZooArguments& arguments) {
  if (arguments.name.empty()) {
    if (arguments.output.empty()) return list_models(arguments);
    return bad_input("zoo: no model for '" + arguments.output +
                     "', expected regen zoo NAME -o FILE");
  }
  const std::string text = names_zoo(arguments.name) ? arguments.name.substr(4) : arguments.name;
  REGEN_ASSIGN(const ZooReference reference, parse_zoo_reference(text));
  if (arguments.batch && text.find('@') != std::string::npos) {
    return bad_input("zoo: two batches for '" + text + "', expected either @BATCH or --batch");
  }
  const std::int64_t batch = arguments.batch.value_or(reference.batch);
  const ZooOptions options = zoo_options(arguments.graph, batch);
  if (arguments.output.empty()) {
    REGEN_ASSIGN(const ZooSummary summary, zoo_summary(reference.name, options));
    return show_model(summary, arguments, batch);
  }
  REGEN_ASSIGN(const Graph graph, zoo_graph(reference.name, options));
  const published::GraphFormat format = arguments.format.value_or(
      published::format_of_path(arguments.output).value_or(published::GraphFormat::kRegen));
  REGEN_ASSIGN(const std::string content, published::write_graph(graph, format));
  return write_file(arguments.output, content);
}

}  // namespace

void add_zoo(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "zoo", "List the models, show one, or write it as a graph",
                            "  regen zoo\n"
                            "  regen zoo vgg19 --batch 32 --json\n"
                            "  regen zoo gpt2_small --backward exact -o gpt2.json");
  auto arguments = std::make_shared<ZooArguments>();
  verb.add_option("NAME", arguments->name, "The model; without it all are listed")->type_name("");
  add_parsed(verb, "--batch", arguments->batch, whole_number(1, kMaxBatch), "N",
             "Samples in one step (default 1)");
  add_zoo_options(verb, arguments->graph);
  add_output(verb, arguments->output, "Write the graph here; - is standard output");
  add_parsed(verb, "--to", arguments->format, published::parse_format, "FORMAT",
             "regen, lower-sets, monet or dot (default: by the file's extension, else regen)");
  add_json(verb, arguments->json);
  set_action<ZooArguments>(verb, action, arguments, run_zoo);
}

}  // namespace regen::cli
