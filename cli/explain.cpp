// regen explain: what fills the memory at the peak of a plan, or what no plan can avoid.
#include <string>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "regen/plan/explain.h"

namespace regen::cli {
namespace {

struct Arguments {
  GraphArgument graph;
  std::string plan;
  BudgetArgument budget;
  std::int64_t rows = 20;
  bool json = false;
};

Status explain_plan(const Arguments& arguments, const LoadedGraph& loaded) {
  const Graph& graph = loaded.graph;
  REGEN_ASSIGN(const Plan plan, load_valid_plan(arguments.plan, graph));
  const Explanation explanation = explain(graph, plan);
  if (arguments.json) return print_json(to_json(graph, plan, explanation));
  return print(to_text(graph, plan, explanation, static_cast<std::size_t>(arguments.rows)));
}

Status explain_budget(const Arguments& arguments, const Graph& graph, Bytes budget) {
  const Infeasibility verdict = explain_infeasible(graph, budget);
  if (arguments.json) {
    REGEN_TRY(print_json(Json{{"budget_bytes", budget},
                              {"infeasible", verdict.proven},
                              {"message", verdict.message},
                              {"structural_bound", to_json(graph, verdict.bound)}}));
  }
  if (verdict.proven) return infeasible(verdict.message);
  return arguments.json ? Status() : print(verdict.message + "\n");
}

Status run_explain(const Arguments& arguments) {
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  if (!arguments.plan.empty()) return explain_plan(arguments, loaded);
  REGEN_ASSIGN(const std::optional<Bytes> budget, resolve_budget(arguments.budget, loaded));
  if (budget) return explain_budget(arguments, loaded.graph, *budget);
  const StructuralBound bound = structural_bound(loaded.graph);
  if (arguments.json) return print_json(to_json(loaded.graph, bound));
  return print(to_text(loaded.graph, bound) + "\n");
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  CLI::App& verb =
      add_verb(app, "explain", "Say what fills the memory at a plan's peak, or why no plan fits",
               "  regen explain zoo:vgg19@64 plan.json\n"
               "  regen explain zoo:vgg19@64 --budget 1GiB");
  auto arguments = std::make_shared<Arguments>();
  add_graph(verb, arguments->graph);
  CLI::Option* plan =
      verb.add_option("PLAN", arguments->plan, "A plan file; without it the bound is explained");
  plan->type_name("");
  add_budget(verb, arguments->budget);
  verb.get_option("--budget")->excludes(plan);
  verb.get_option("--activation-budget")->excludes(plan);
  verb.remove_option(verb.get_option("--host-budget"));
  add_parsed(verb, "--rows", arguments->rows, whole_number(1, 1'000'000'000), "N",
             "How many tensors are listed (default 20)");
  add_json(verb, arguments->json);
  set_action<Arguments>(verb, action, arguments, run_explain);
}

}  // namespace regen::cli
