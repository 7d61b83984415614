// The exact hybrid of recomputation and swapping, with stalls priced (after STR, but not its
// program: docs/planners.md says how they differ), and its relaxation, rounded.
#include "regen/search/exact/swap_solver.h"
#include "regen/search/planner_list.h"
#include "regen/search/build/sequence.h"
#include "regen/published/str/str_published.h"

namespace regen {
namespace {

// What is carried from stage to stage is a matrix of ops by values.
constexpr std::size_t kMostOps = 20'000;

Status check_problem(const Problem& problem, const char* planner) {
  if (problem.options.accounting != Accounting::kPlain) {
    return bad_input(std::string("planner ") + planner +
                     " counts memory in one way only, expected accounting plain");
  }
  return check_sequences_possible(*problem.graph);
}

// What the published program decides, as the judge sees it; nothing is proven for our problem.
Result<Proposal> plan_published(const Problem& problem, Effort& effort) {
  REGEN_ASSIGN(const PublishedAnswer answer, solve_published_str(problem, effort));
  Proposal proposal{.status = PlanStatus::kUnknown, .note = "the published program: "};
  if (!answer.matrices) {
    const bool none = answer.status == ModelStatus::kInfeasible;
    proposal.note += none ? "nothing fits" : "nothing found in time";
    return proposal;
  }
  const bool proven = answer.status == ModelStatus::kOptimal;
  proposal.note += (proven ? "optimal at " : "best known ") +
                   format_cost(answer.cost, problem.graph->cost_unit()) + ", stalls not counted";
  proposal.status = PlanStatus::kFeasible;
  REGEN_ASSIGN(proposal.plan, plan_from_matrices(*problem.graph, *answer.matrices));
  return proposal;
}

// Its bound is about any movement.
Result<Proposal> about_order(Result<Proposal> proposal) {
  if (proposal.ok()) proposal->bound_kind = BoundKind::kOrder;
  return proposal;
}

}  // namespace

Result<Proposal> plan_str(const Problem& problem, Effort& effort) {
  REGEN_TRY(check_problem(problem, "str"));
  if (problem.options.model == PlanningModel::kPublished) return plan_published(problem, effort);
  if (!problem.budget) return plan_keep_all(problem, effort);
  if (problem.graph->num_ops() > kMostOps) {
    REGEN_ASSIGN(Proposal proposal, plan_capuchin(problem, effort));
    proposal.note = "more than " + format_grouped(kMostOps) + " ops: only capuchin was asked";
    return proposal;
  }
  return about_order(SwapSolver(problem, effort).solve());
}

Result<Proposal> plan_str_lp(const Problem& problem, Effort& effort) {
  REGEN_TRY(check_problem(problem, "str_lp"));
  if (!problem.budget) return plan_keep_all(problem, effort);
  if (problem.graph->num_ops() > kMostOps) {
    return limit_reached("more than " + format_grouped(kMostOps) + " ops");
  }
  return about_order(SwapSolver(problem, effort).round());
}

}  // namespace regen
