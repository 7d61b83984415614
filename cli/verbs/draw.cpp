// regen draw: a graph by Graphviz, or a plan as a schedule with its memory curve.
#include <string>

#include "cli/options/options.h"
#include "cli/pictures/child.h"
#include "cli/pictures/graph_picture.h"
#include "cli/pictures/plotting.h"
#include "cli/pictures/schedule_picture.h"
#include "cli/verbs/verbs.h"
#include "regen/base/file.h"
#include "regen/published/graph_formats.h"
#include "regen/simulate/simulate.h"

namespace regen::cli {
namespace {

struct DrawArguments {
  GraphArgument graph;
  std::string plan;
  BudgetArgument budget;
  std::string output;
};

// Beyond this dot needs minutes, because every long edge passes through every row.
constexpr std::size_t kMostOpsForDot = 60;
// Beyond this the picture is not readable.
constexpr std::size_t kMostDrawnOps = 5000;

// Graphviz lays small graphs out itself; large ones get their places here.
Result<ChildResult> run_graphviz(const Graph& graph, const std::string& format) {
  REGEN_ASSIGN(const std::string dot, published::write_graph(graph, published::GraphFormat::kDot));
  std::vector<std::string> command{"dot", "-T" + format, "-Efontsize=9", "-Efontcolor=#555555",
                                   "-Ecolor=#777777"};
  if (graph.num_ops() <= kMostOpsForDot) return run_child(command, dot);
  command[0] = "neato";
  command.insert(command.end(), {"-n2", "-Gsplines=line", "-Goutputorder=edgesfirst"});
  return run_child(command, with_positions(graph, dot));
}

Status draw_graph(const Graph& graph, const std::string& format, const std::string& path) {
  if (graph.num_ops() > kMostDrawnOps) {
    return bad_input("cannot draw '" + graph.name() + "': it has " +
                     std::to_string(graph.num_ops()) + " ops, expected at most " +
                     std::to_string(kMostDrawnOps) + "; draw it with a plan");
  }
  const auto child = run_graphviz(graph, format);
  if (!child.ok() && child.error().code == ErrorCode::kMissing) {
    return missing("cannot draw '" + path + "': " + child.error().message +
                   "; Graphviz is needed (Debian: apt install graphviz)");
  }
  if (!child.ok()) return child.error();
  if (child->status == 0 && !child->output.empty()) return write_file(path, child->output);
  return missing("cannot draw '" + path + "': Graphviz failed with status " +
                 std::to_string(child->status) + ": " + last_line(child->errors));
}

Status run_draw(const DrawArguments& arguments) {
  REGEN_ASSIGN(const std::string format, picture_format(arguments.output, {"svg", "png", "pdf"}));
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  if (arguments.plan.empty()) return draw_graph(loaded.graph, format, arguments.output);
  REGEN_ASSIGN(const Plan plan, load_valid_plan(arguments.plan, loaded.graph));
  REGEN_ASSIGN(const std::optional<Bytes> budget, resolve_budget(arguments.budget, loaded));
  const auto simulation = simulate(loaded.graph, plan, {.link = loaded.link, .record = true});
  if (!simulation.ok()) return in_file(arguments.plan, simulation.error());
  Json picture = schedule_picture(loaded.graph, plan, *simulation, budget);
  picture["title"] = loaded.label;
  return draw_plot("schedule", picture, format, arguments.output);
}

}  // namespace

void add_draw(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "draw", "Draw a graph, or a plan with its memory curve",
                            "  regen draw zoo:vgg19 -o vgg19.svg\n"
                            "  regen draw zoo:vgg19@64 plan.json --budget 6GiB -o plan.png");
  auto arguments = std::make_shared<DrawArguments>();
  add_graph(verb, arguments->graph);
  verb.add_option("PLAN", arguments->plan, "A plan file; without it the graph is drawn")
      ->type_name("");
  add_budget(verb, arguments->budget);
  verb.remove_option(verb.get_option("--host-budget"));
  add_output(verb, arguments->output, "The picture: FILE.svg, FILE.png or FILE.pdf");
  verb.get_option("--output")->required();
  set_action<DrawArguments>(verb, action, arguments, run_draw);
}

}  // namespace regen::cli
