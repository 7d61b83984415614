// regen convert: from one graph format to another.
#include <optional>
#include <string>

#include "cli/options/options.h"
#include "cli/verbs/verbs.h"
#include "regen/base/file.h"
#include "regen/published/graph_formats.h"

namespace regen::cli {
namespace {

struct ConvertArguments {
  GraphArgument graph;
  std::string output;
  std::optional<published::GraphFormat> format;
};

Status run_convert(const ConvertArguments& arguments) {
  const auto format =
      arguments.format ? arguments.format : published::format_of_path(arguments.output);
  if (!format) {
    return bad_input("convert: the name '" + arguments.output +
                     "' does not say which format is meant, expected --to regen, lower-sets, "
                     "monet or dot");
  }
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  REGEN_ASSIGN(const std::string content, published::write_graph(loaded.graph, *format));
  return write_file(arguments.output, content);
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "convert", "Write a graph in another format",
                            "  regen convert zoo:resnet50@8 -o resnet50.json\n"
                            "  regen convert graph.txt -o graph.dot");
  auto arguments = std::make_shared<ConvertArguments>();
  arguments->graph.adds_costs = false;
  add_graph(verb, arguments->graph);
  add_output(verb, arguments->output, "Write the graph here; - is standard output");
  verb.get_option("--output")->required();
  add_parsed(verb, "--to", arguments->format, published::parse_format, "FORMAT",
             "regen, lower-sets, monet or dot (default: by the file's extension)");
  set_action<ConvertArguments>(verb, action, arguments, run_convert);
}

}  // namespace regen::cli
