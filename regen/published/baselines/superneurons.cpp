// SuperNeurons' rule by layer type: values of expensive layers (convolutions, matrix products) move
// to the host when their bytes are needed; values of cheap layers between them are dropped and
// recomputed from there, once for each segment.
#include <algorithm>
#include <array>

#include "regen/published/planner_list.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/movement.h"
#include "regen/search/build/resting_values.h"
#include "regen/search/build/sequence.h"
#include "regen/search/judge.h"

namespace regen::published {
namespace {

bool is_expensive(const Graph& graph, OpId op) {
  constexpr std::array<std::string_view, 7> kExpensive{"conv",  "dense",     "linear",   "matmul",
                                                       "addmm", "attention", "embedding"};
  std::string type = graph.type(op);
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::any_of(
      kExpensive, [&](std::string_view word) { return type.find(word) != std::string::npos; });
}

// The steps in which only `kept` survives the forward pass.
std::vector<Step> steps_with(const Graph& graph, const std::vector<OpId>& kept, Effort& effort) {
  const search::Checkpoints marks = search::make_checkpoints(graph, kept);
  return search::plan_from_sequence(graph, search::recompute_sequence(graph, marks, effort)).steps;
}

Result<search::Candidate> judged(const search::Problem& problem, const std::vector<Step>& steps,
                                 const IdVector<TensorId, char>& moves, OpId turn) {
  const Graph& graph = *problem.graph;
  const auto moved = [&](Bytes limit) {
    return search::move_tensors(graph, steps, turn, moves, problem.link, limit);
  };
  const Bytes limit = std::max(moved(0).peak_bytes, problem.budget.value_or(0));
  search::MovedSteps result = moved(limit);
  search::Candidate candidate{.plan = {.steps = std::move(result.steps)}};
  REGEN_ASSIGN(candidate.simulation, simulate(graph, candidate.plan, {.link = problem.link}));
  candidate.note = format_count(result.moved, "value") + " moved, " +
                   format_count(candidate.simulation.recomputed, "op") + " run again";
  return candidate;
}

}  // namespace

Result<search::Proposal> plan_superneurons(const search::Problem& problem, Effort& effort) {
  REGEN_TRY(search::expect_plain_accounting(problem, "superneurons"));
  const Graph& graph = *problem.graph;
  REGEN_TRY(search::check_sequences_possible(graph));
  const search::RestingValues values(graph);
  std::vector<OpId> all, expensive;
  for (OpId op : graph.ops()) {
    if (graph.phase(op) != Phase::kForward) continue;
    all.push_back(op);
    // Without the last one, values behind the last that stays would stay too.
    const bool last = op.index() + 1 == values.turn().index();
    if (is_expensive(graph, op) || last) expensive.push_back(op);
  }
  IdVector<TensorId, char> none(graph.num_tensors(), 0), moves = none;
  Bytes host_bytes = 0;
  for (OpId op : expensive) {
    for (TensorId t : graph.makes(search::base_variant(graph, op))) {
      const Bytes bytes = host_bytes + graph.bytes(t);
      if (!problem.link.can_move() || !values.rests(t)) continue;
      if (bytes > problem.host_budget.value_or(kMaxBytes)) continue;
      moves[t] = 1;
      host_bytes = bytes;
    }
  }
  // Its three mechanisms, one after the other: liveness alone, movement, recomputation as well.
  search::BestCandidate best(problem);
  for (const auto& [kept, leaves] :
       {std::pair{&all, &none}, std::pair{&all, &moves}, std::pair{&expensive, &moves}}) {
    REGEN_ASSIGN(search::Candidate candidate,
                 judged(problem, steps_with(graph, *kept, effort), *leaves, values.turn()));
    const bool fits = problem.budget && search::within_limits(problem, candidate.simulation);
    best.offer(std::move(candidate));
    if (fits) break;
  }
  return std::move(best).proposal("nothing was tried");
}

}  // namespace regen::published
