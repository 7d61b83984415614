// What decisions of the interval model (interval_model.h) are worth: the sequence of ops that follows
// from them, its bytes at each op and its cost. Where nothing moves and no op overwrites its input,
// bytes are counted in one pass over the ops; else over the steps. The simulator prices a plan that
// moves values, because copies and computes overlap.
#pragma once

#include <vector>

#include "regen/search/local/interval_model.h"
#include "regen/search/planner.h"

namespace regen::search {

struct IntervalPlan {
  std::vector<OpId> ops;
  std::vector<std::uint32_t> stage;  // by position: the op that first runs there or needs it
  std::vector<Step> steps;           // only where something moves
  double cost = 0;                   // with stalls only for a plan that fits
  Bytes peak_bytes = 0;
  bool fits = false;
  std::vector<Bytes> stage_bytes;    // the most in use while each op, or what it needs again, runs
  std::vector<std::uint32_t> worst;  // by stage: the position with these bytes
  std::vector<std::uint32_t> returned;  // IntervalSequence::returned
  std::vector<TensorId> lost;           // IntervalSequence::lost; a plan with some never fits
};

std::vector<Step> steps_of(const Graph& graph, const IntervalPlan& plan);

struct IntervalState {
  Decisions decisions;
  IntervalPlan plan;
};

// What there is to decide; all workers of a search share it. The problem must have a budget and
// outlive it.
struct IntervalSpace {
  explicit IntervalSpace(const Problem& posed);

  bool can_move() const { return problem.link.can_move() && !movable.empty(); }

  const Problem& problem;
  const Graph& graph;
  IntervalModel model;
  // With more ops than this, and while many ops are over the budget, all of them are relieved in
  // one pass and not one by one.
  bool many() const { return graph.num_ops() > 1'000; }
  // With more ops than this, methods of quadratic time take too long.
  bool large() const { return graph.num_ops() > 2'500; }

  OpId turn;
  bool overwrites = false;                 // some op may overwrite its input
  IdVector<TensorId, char> needed_at_end;  // outputs and what is fixed
  Bytes bytes_at_end = 0;
  std::vector<IntervalId> over_turn;  // of values that rest over the turn, in the order of making
  std::vector<IntervalId> inner;      // droppable intervals of values with bytes, between two uses
  std::vector<TensorId> sources;      // values of no further use from which others are made
  // Intervals in which a value of some bytes can be away, and of those before each, and of all: the
  // bytes, weighted with the fraction of the ops that the interval spans if it does not span the
  // turn, where bytes are scarce.
  std::vector<IntervalId> movable;
  std::vector<double> movable_before;
};

// Leads: by tensor, how far ahead its fetches should be, in durations of the copy; 1 if empty.
IntervalPlan evaluate(const IntervalSpace& space, const Decisions& decisions, Bytes budget,
                      const IdVector<TensorId, double>& leads = {});

// The cost of the computes of a plan, without stalls.
double cost_of_runs(const IntervalSpace& space, const IntervalPlan& plan);

}  // namespace regen::search
