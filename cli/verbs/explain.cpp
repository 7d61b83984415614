// regen explain: what fills the memory at the peak of a plan, what no plan can avoid, and why no
// plan is better: where memory binds and what more of it would bring.
#include <optional>
#include <string>

#include "cli/options/options.h"
#include "cli/options/planner_options.h"
#include "cli/output/output.h"
#include "cli/output/shadow_price_text.h"
#include "cli/verbs/verbs.h"
#include "regen/plan/explain.h"
#include "regen/simulate/simulate.h"

namespace regen::cli {
namespace {

// Of the two linear programs; some seconds. Counted, so that the same call says the same.
constexpr std::int64_t kDefaultWork = 8'000'000;

struct ExplainArguments {
  GraphArgument graph;
  std::string plan;
  BudgetArgument budget;
  Bytes more = Bytes{1} << 30;
  std::int64_t rows = 20;
  Limits limits;
  bool json = false;

  std::size_t max_rows() const { return static_cast<std::size_t>(rows); }
};

search::ShadowPrice price_at(const ExplainArguments& arguments, const LoadedGraph& loaded,
                             Bytes budget) {
  Effort effort(limits_or(arguments.limits, kDefaultWork));
  return search::price_memory(loaded.graph, loaded.link, budget, arguments.more, effort);
}

// Why no plan is better, within the budget or else within what this plan needs: text or JSON.
struct WhyNotBetter {
  std::string text;
  Json json;
};

WhyNotBetter why_not_better(const ExplainArguments& arguments, const LoadedGraph& loaded,
                            const Plan& plan, Bytes budget) {
  const auto simulation = simulate(loaded.graph, plan, {.link = loaded.link});
  if (!simulation.ok()) {  // it moves tensors, and at which speed was not said
    return {"not known: " + simulation.error().message + ", expected --device NAME\n", nullptr};
  }
  const search::ShadowPrice price = price_at(arguments, loaded, budget);
  const PricedPlan priced{loaded.graph, price, &plan, simulation->cost};
  if (arguments.json) return {"", price_json(priced, arguments.max_rows())};
  return {price_text(priced, arguments.max_rows()), nullptr};
}

Status explain_plan(const ExplainArguments& arguments, const LoadedGraph& loaded,
                    const std::optional<Bytes>& budget) {
  const Graph& graph = loaded.graph;
  REGEN_ASSIGN(const Plan plan, load_valid_plan(arguments.plan, graph));
  const Explanation explanation = explain(graph, plan);
  if (budget && explanation.peak_bytes > *budget) {
    return bad_input(arguments.plan + ": takes " + format_grouped(explanation.peak_bytes) +
                     " bytes, expected a plan within the budget of " + format_grouped(*budget));
  }
  const WhyNotBetter why =
      why_not_better(arguments, loaded, plan, budget.value_or(explanation.peak_bytes));
  if (!arguments.json) {
    return print(to_text(graph, plan, explanation, arguments.max_rows()) + "\nWhy not better\n" +
                 why.text);
  }
  Json json = to_json(graph, plan, explanation);
  json["memory_price"] = why.json;
  return print_json(json);
}

Status explain_budget(const ExplainArguments& arguments, const LoadedGraph& loaded, Bytes budget) {
  const Graph& graph = loaded.graph;
  const Infeasibility verdict = explain_infeasible(graph, budget);
  Json json{{"budget_bytes", budget},
            {"infeasible", verdict.proven},
            {"message", verdict.message},
            {"structural_bound", to_json(graph, verdict.bound)}};
  if (verdict.proven) {
    if (arguments.json) REGEN_TRY(print_json(json));
    return infeasible(verdict.message);
  }
  const search::ShadowPrice price = price_at(arguments, loaded, budget);
  const PricedPlan priced{graph, price};
  if (!arguments.json) {
    return print(verdict.message + "\n\n" + price_text(priced, arguments.max_rows()));
  }
  json["memory_price"] = price_json(priced, arguments.max_rows());
  return print_json(json);
}

Status run_explain(const ExplainArguments& arguments) {
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  REGEN_ASSIGN(const std::optional<Bytes> budget, resolve_budget(arguments.budget, loaded));
  if (!arguments.plan.empty()) return explain_plan(arguments, loaded, budget);
  if (budget) return explain_budget(arguments, loaded, *budget);
  const StructuralBound bound = structural_bound(loaded.graph);
  if (arguments.json) return print_json(to_json(loaded.graph, bound));
  return print(to_text(loaded.graph, bound) + "\n");
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  CLI::App& verb =
      add_verb(app, "explain", "Say what fills the memory, why no plan fits, or why none is better",
               "  regen explain zoo:vgg19@64 plan.json\n"
               "  regen explain zoo:vgg19@64 --budget 4.5GiB --device v100-16");
  auto arguments = std::make_shared<ExplainArguments>();
  add_graph(verb, arguments->graph);
  verb.add_option("PLAN", arguments->plan, "A plan file; without it the bounds are explained")
      ->type_name("");
  add_budget(verb, arguments->budget);
  verb.remove_option(verb.get_option("--host-budget"));
  add_parsed(verb, "--more", arguments->more, parse_bytes, "BYTES",
             "What so much more memory would bring is asked (default 1GiB)");
  add_parsed(verb, "--rows", arguments->rows, whole_number(1, 1'000'000'000), "N",
             "How many tensors and ops are listed (default 20)");
  add_limits(verb, arguments->limits);
  add_json(verb, arguments->json);
  set_action<ExplainArguments>(verb, action, arguments, run_explain);
}

}  // namespace regen::cli
