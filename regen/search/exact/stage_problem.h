// The stage problem: the facts about a graph that the exact planner, its relaxation and the search
// for good schedules need, in flat arrays.
//
// A schedule has one stage for each op, in the order of op ids. Stage t ends by running op t for
// the first time; before that it may run lower ops again, each at most once, in the order of ids.
//
//   S[t, v]  value v is in memory when stage t begins (row T: at the end of the step)
//   R[t, i]  op i runs in stage t
//
// A value is released right after its last use in a stage if the next stage does not begin with it,
// exactly as plan_from_sequence does it. So costs and bytes are those of the simulator.
#pragma once

#include <cstdint>
#include <vector>

#include "regen/graph/csr.h"
#include "regen/graph/graph.h"

namespace regen::search {

// A planned tensor; values are numbered in the order in which they are first made.
using ValueId = Id<struct ValueTag>;

struct StageProblem {
  const Graph* graph = nullptr;
  std::size_t num_ops = 0;
  std::size_t num_values = 0;

  IdVector<ValueId, TensorId> tensor;
  IdVector<ValueId, Bytes> bytes;
  IdVector<ValueId, std::uint32_t> producer;  // op index
  IdVector<ValueId, char> output;             // needed at the end of the step
  // The last stage at the start of which it can be of use; num_ops for outputs.
  IdVector<ValueId, std::uint32_t> useful_until;
  // Of use after the last first run: outputs, and the values needed to recompute one there.
  IdVector<ValueId, char> useful_behind;

  Csr<OpId, ValueId> reads;
  Csr<OpId, ValueId> makes;
  Csr<ValueId, OpId> readers;  // ascending
  IdVector<OpId, Bytes> workspace;
  IdVector<OpId, double> first_cost;
  IdVector<OpId, double> rerun_cost;
  // Whether it may run again at all, and whether it may in every stage where that can be of use.
  IdVector<OpId, char> again, repeatable;
  // The first op that changes what it reads; SIZE_MAX if none does.
  IdVector<OpId, std::size_t> changed_by;
  // The last stage in which a re-run can be of use and reads what the first run has read; 0 if the
  // op may not run again.
  IdVector<OpId, std::uint32_t> rerun_until;
  IdVector<OpId, char> rerun_behind;  // may run again after the last first run, for an output

  double base_cost = 0;  // every op once
  Bytes fixed_bytes = 0;
  // Each op has one variant and overwrites nothing. Then a bound on these schedules is a bound on
  // all plans that run the graph's ops in this order, stage by stage.
  bool exact = true;

  // In a stage where its values are of no use as well: a run waits for what it reads.
  bool can_run_again(OpId op, std::size_t stage) const {
    return again[op] && op.index() < stage && stage <= changed_by[op];
  }

  bool may_run_again(OpId op, std::size_t stage) const {
    return repeatable[op] || stage <= rerun_until[op] || (stage == num_ops && rerun_behind[op]);
  }
};

// `forward_only`: no op after the forward phase runs twice. The graph must outlive the result.
StageProblem make_stage_problem(const Graph& graph, bool forward_only);

// The same without re-runs of ops that cost more than `most`.
StageProblem without_expensive_reruns(const StageProblem& stages, double most);

// A whole number that every cost in the graph is a multiple of; 0 if some are not whole.
double common_cost(const StageProblem& stages);

}  // namespace regen::search
