// The rounds of the portfolio (table.h) for a graph as it stands: each op in one variant, first runs
// in the order of the graph as far as the asked planners keep it.
//
//   starts of local search -> quick -> rescue -> bound -> exact -> local search -> resume -> local
//   search
//
// Each round stops when the best plan is proven optimal. What a planner proposes is also a start
// for local search.
#pragma once

#include <string>

#include "regen/search/judge.h"
#include "regen/search/portfolio/table.h"

namespace regen::search {

// The bound is about `original`, of which the problem's graph may be a view with one variant for
// each op. `unlimited`: the limits of the effort are our own, not the caller's, and small graphs
// may take longer.
Result<Proposal> run_portfolio(const Problem& problem, const Graph& original, bool unlimited,
                               Effort& effort);

// Whether the plan keeps the problem's rules: not every planner asks whether gradients may be made
// twice, or keeps the order of the graph where it must.
bool allowed(const Problem& problem, const Plan& plan);

// The problem for a planner that is asked: only the portfolio reports progress.
Problem quiet(const Problem& problem);

bool is_ablated(const Problem& problem, const Row& row);
bool is_ablated(const Problem& problem, Part part);

// Adds what an outcome says to the problem's trace, if there is one.
void note_event(const Problem& problem, const Effort& effort, std::string source,
                const Outcome& outcome);

}  // namespace regen::search
