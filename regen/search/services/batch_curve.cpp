#include "regen/search/services/batch_curve.h"

#include <algorithm>

#include "regen/base/progress/progress.h"
#include "regen/plan/explain.h"

namespace regen::search {
namespace {

// Between what keeping everything and what every plan needs: most of the way to the latter.
std::int64_t first_guess(const Graph& graph, std::int64_t batch, Bytes budget) {
  const auto least = static_cast<double>(structural_bound(graph).bytes - graph.fixed_bytes());
  const auto there = static_cast<double>(budget - graph.fixed_bytes());
  const double most = static_cast<double>(batch) * there / std::max(1.0, least);
  return static_cast<std::int64_t>(std::clamp(0.75 * most, 1.0, 1e6));
}

std::int64_t scaled_guess(const Graph& graph, std::int64_t batch, Bytes from, Bytes to) {
  const auto there = static_cast<double>(from - graph.fixed_bytes());
  const auto wanted = static_cast<double>(to - graph.fixed_bytes());
  const double scaled = static_cast<double>(batch) * wanted / std::max(1.0, there);
  return static_cast<std::int64_t>(std::clamp(scaled, 1.0, 1e6));
}

}  // namespace

bool within_one_forward_pass(const Graph& graph, double cost) {
  return cost <= graph.base_cost() + forward_cost(graph);
}

Result<std::vector<LargestBatch>> largest_batches(const Planner& planner,
                                                  const BatchCurveProblem& problem,
                                                  std::span<const BatchBudget> budgets) {
  REGEN_ASSIGN(const Graph graph, problem.graph_at(problem.batch));
  MaxBatchProblem search{.graph_at = problem.graph_at,
                         .link = problem.link,
                         .options = problem.options,
                         .limits = problem.limits,
                         .batch_only = true,
                         .most_solves = problem.most_solves};
  std::vector<LargestBatch> answers(budgets.size());
  Progress progress({.stage = "batch", .subject = "for each budget", .total = budgets.size()});
  // From the largest budget down, where it is most certain that something fits.
  for (std::size_t i = budgets.size(); i-- > 0;) {
    const bool known_above = i + 1 < budgets.size() && answers[i + 1].batch > 0;
    search.memory = budgets[i].bytes;
    search.known = budgets[i].fits ? problem.batch : 0;
    search.guess = known_above ? scaled_guess(graph, answers[i + 1].batch, budgets[i + 1].bytes,
                                              budgets[i].bytes)
                               : first_guess(graph, problem.batch, budgets[i].bytes);
    search.stride = std::max<std::int64_t>(1, *search.guess / (known_above ? 128 : 8));
    REGEN_ASSIGN(const MaxBatchAnswer answer, max_batch(planner, search));
    answers[i] = {answer.max_batch, answer.limited_by.empty()};
    progress.advance();
  }
  // What fits into less fits into more.
  for (std::size_t i = 1; i < answers.size(); ++i) {
    if (answers[i - 1].batch > answers[i].batch) answers[i] = {answers[i - 1].batch, false};
  }
  return answers;
}

}  // namespace regen::search
