// From decisions to step lists, for planners that only recompute. A sequence of ops becomes a plan
// in which every tensor is released right after its last use. A set of checkpoints becomes such a
// sequence.
#pragma once

#include <span>
#include <vector>

#include "regen/base/limit.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::search {

// The variant in which these planners run an op: the first that leaves its inputs alone, or the
// default where all overwrite one.
VariantId base_variant(const Graph& graph, OpId op);

// Whether `v` does the same as `base` at no higher price and reads nothing more.
bool can_replace(const Graph& graph, VariantId v, VariantId base);

// Fails where an op overwrites its input in every variant although others read it too: sequences
// of base variants cannot keep such a value for both.
Status check_sequences_possible(const Graph& graph);

// Runs the ops in this order, each in its base variant or, where that costs no more and its input
// is not needed again, in a variant that overwrites the input; releases every tensor after its
// last use. Each op must appear at least once, after what it reads.
Plan plan_from_sequence(const Graph& graph, const std::vector<OpId>& sequence);

// The ops that a plan runs, in its order.
std::vector<OpId> sequence_of(const Plan& plan);

// The steps of a part of such a plan: as above, but what is in `needed_after` stays at the end.
// What the part reads and does not make is there before it; what it reads last it releases.
std::vector<Step> steps_of_part(const Graph& graph, std::span<const OpId> sequence,
                                std::span<const TensorId> needed_after);

// The first op that changes something each op reads; SIZE_MAX where none does.
IdVector<OpId, std::size_t> first_changes(const Graph& graph);

// Which ops may run again wherever one of their values could be needed: they are recomputable, and
// no op that mutates something they read runs before the last such place. With `forward_only` ops
// after the forward phase are never repeated. Without it, they may be repeated if that does not
// restrict any forward op.
IdVector<OpId, char> repeatable_ops(const Graph& graph, bool forward_only);

// Which forward values survive the forward pass.
//
//   forward ops   a  b  c  d  e  f  g  h     `checkpoint` marks c and f
//   segments      0  0  0  1  1  1  2  2     a segment ends with its checkpoint
//
// The values of the last segment are kept until their last use; of the others only the
// checkpoints. When the backward pass needs a dropped value, it is recomputed with everything
// missing before it; what belongs to the same segment is then kept until its last use, what lies
// before it only for this recomputation. Gradients are never recomputed.
struct Checkpoints {
  IdVector<OpId, bool> checkpoint;  // false for ops that are not forward
  IdVector<OpId, std::uint32_t> segment;
};

// Segments from the marks, in the order of op ids.
Checkpoints make_checkpoints(const Graph& graph, const std::vector<OpId>& marked);

// The sequence of ops that realises the checkpoints. Counts one unit of work for each op run.
std::vector<OpId> recompute_sequence(const Graph& graph, const Checkpoints& checkpoints,
                                     Effort& effort);

}  // namespace regen::search
