// Forward values leave after their last forward use and return one op ahead of their first
// backward use (further ahead if the copy takes longer); those that are cheap to make are dropped
// and recomputed instead. Under a budget the fewest leave, those with the longest rest and the most
// bytes first.
#include <algorithm>
#include <array>

#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/movement.h"
#include "regen/search/build/resting_values.h"
#include "regen/search/build/sequence.h"
#include "regen/search/judge.h"
#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

// How many ops a dropped value may need to come back. Movement overlaps with computation, so
// that dropping can cost more although the copies alone take longer: the judge compares.
constexpr std::array<std::size_t, 6> kLongestChains{0, 1, 2, 4, 8, 16};

class Vdnn {
 public:
  Vdnn(const Problem& problem, Effort& effort)
      : problem_(problem),
        graph_(*problem.graph),
        effort_(effort),
        values_(*problem.graph),
        best_(problem) {}

  Result<Proposal> run() && {
    REGEN_TRY(check_sequences_possible(graph_));
    REGEN_TRY(offer({}, 0));
    everything_kept_ = best_.best()->simulation.cost;
    for (const std::size_t longest_chain : kLongestChains) {
      REGEN_TRY(follow(values_.rule(problem_.link, longest_chain)));
      // Over a slow link a move that makes the plan fit can be worse than several more drops.
      REGEN_TRY(follow(values_.rule(Link{}, longest_chain)));
    }
    return proposal();
  }

 private:
  // What a number of departures, the first of the rule, make of the step.
  struct Decision {
    std::vector<Step> steps;  // with what is dropped, without what moves
    IdVector<TensorId, char> moves;
  };

  Status follow(DepartureRule rule) {
    const bool known = std::ranges::find(followed_, rule) != followed_.end();
    if (known || rule.departures.empty() || perfect() || effort_.exhausted()) return {};
    REGEN_TRY(offer(rule, departures_needed(rule)));
    followed_.push_back(std::move(rule));
    return {};
  }

  // Within the budget and as fast as keeping everything; without a budget nothing is.
  bool perfect() const {
    const Simulation& simulation = best_.best()->simulation;
    return problem_.budget && within_limits(problem_, simulation) &&
           simulation.cost <= everything_kept_;
  }

  Result<Proposal> proposal() { return std::move(best_).proposal("nothing was tried"); }

  Decision decide(const DepartureRule& rule, std::size_t count) {
    IdVector<OpId, char> stays(graph_.num_ops(), 1);
    Decision decision{.moves = IdVector<TensorId, char>(graph_.num_tensors(), 0)};
    for (OpId op : graph_.ops()) {
      if (!rule.rerun.empty() && rule.rerun[op]) stays[op] = 0;
    }
    Bytes host_bytes = 0;
    for (std::size_t i = 0; i < rule.departures.size(); ++i) {
      const Departure& departure = rule.departures[i];
      if (i >= count) stays[departure.op] = 1;
      if (i < count && !departure.drop) host_bytes += move(departure.op, host_bytes, decision);
    }
    decision.steps = steps_with(stays);
    return decision;
  }

  // Marks what rests of the op's values, unless the host is full; returns the bytes marked. All
  // that moves is on the host when the backward pass begins, so the sum is what it needs.
  Bytes move(OpId op, Bytes host_bytes, Decision& decision) const {
    Bytes sum = 0;
    for (TensorId t : graph_.makes(base_variant(graph_, op))) {
      const bool fits =
          !problem_.host_budget || host_bytes + sum + graph_.bytes(t) <= *problem_.host_budget;
      if (!values_.rests(t) || !fits) continue;
      decision.moves[t] = 1;
      sum += graph_.bytes(t);
    }
    return sum;
  }

  std::vector<Step> steps_with(const IdVector<OpId, char>& stays) {
    std::vector<OpId> kept;
    for (OpId op : graph_.ops()) {
      // Without the last one, values behind the last that stays would stay too.
      const bool last = op.index() + 1 == values_.turn().index();
      if (op < values_.turn() && (stays[op] || last)) kept.push_back(op);
    }
    const Checkpoints marks = make_checkpoints(graph_, kept);
    return plan_from_sequence(graph_, recompute_sequence(graph_, marks, effort_)).steps;
  }

  MovedSteps moved(const Decision& decision, Bytes limit) {
    effort_.add(static_cast<std::int64_t>(decision.steps.size()));
    return move_tensors(graph_, decision.steps, values_.turn(), decision.moves, problem_.link,
                        limit);
  }

  bool fits(const DepartureRule& rule, std::size_t count) {
    return moved(decide(rule, count), 0).peak_bytes <= *problem_.budget;
  }

  // The least number of departures that keep the budget, found to within a 256th of all; all of
  // them without a budget, or if not even they do.
  std::size_t departures_needed(const DepartureRule& rule) {
    std::size_t enough = rule.departures.size();
    if (!problem_.budget || !fits(rule, enough)) return enough;
    std::size_t too_few = 0;
    const std::size_t precision = 1 + enough / 256;
    while (enough - too_few > precision && !effort_.exhausted()) {
      const std::size_t middle = too_few + (enough - too_few) / 2;
      (fits(rule, middle) ? enough : too_few) = middle;
    }
    return enough;
  }

  Status offer(const DepartureRule& rule, std::size_t count) {
    const Decision decision = decide(rule, count);
    const Bytes least = moved(decision, 0).peak_bytes;
    MovedSteps steps = moved(decision, std::max(least, problem_.budget.value_or(0)));
    Candidate candidate{.plan = {.steps = std::move(steps.steps)}};
    REGEN_ASSIGN(candidate.simulation, simulate(graph_, candidate.plan, {.link = problem_.link}));
    candidate.note = format_count(steps.moved, "value") + " moved, " +
                     format_count(candidate.simulation.recomputed, "op") + " run again";
    best_.offer(std::move(candidate));
    return {};
  }

  const Problem& problem_;
  const Graph& graph_;
  Effort& effort_;
  const RestingValues values_;
  BestCandidate best_;
  double everything_kept_ = 0;  // the cost without departures
  std::vector<DepartureRule> followed_;
};

}  // namespace

Result<Proposal> plan_vdnn(const Problem& problem, Effort& effort) {
  REGEN_TRY(expect_plain_accounting(problem, "vdnn"));
  return Vdnn(problem, effort).run();
}

}  // namespace regen::search
