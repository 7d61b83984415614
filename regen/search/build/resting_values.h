// Which forward values leave the device between the forward and the backward pass, and how.
//
//   forward ops  a  b  c  d | D  C  B  A     D, the first op that is not forward, is the turn
//   value of b         ^--------------^      rests from its last use before the turn (by c) to
//                                            its first use after it
//
// A value that rests is worth its bytes times the cost of the ops in between. It leaves in one of
// two ways: it is dropped and its op run again, if that costs less than two copies, or it moves.
#pragma once

#include <vector>

#include "regen/graph/graph.h"
#include "regen/search/planner.h"

namespace regen::search {

// An op whose values may leave, all of them in the same way.
struct Departure {
  OpId op;
  bool drop = false;
  double worth = 0;

  bool operator==(const Departure&) const = default;
};

struct DepartureRule {
  std::vector<Departure> departures;  // in the order in which they should leave
  // Ops that may run again when a departure does: those of the departures that are dropped, and
  // those whose values the backward pass does not read by itself.
  IdVector<OpId, char> rerun;

  bool operator==(const DepartureRule&) const = default;
};

// The forward pass seen from its end; the graph must outlive it.
class RestingValues {
 public:
  explicit RestingValues(const Graph& graph);

  // The first op that is not forward; none without one, and then nothing rests.
  OpId turn() const { return turn_; }
  // Outputs of the step and values of 0 bytes never rest.
  bool rests(TensorId t) const { return worth_[t] > 0; }

  // A dropped value may need at most `longest_chain` ops to come back, and all that these read
  // must be there for the backward pass anyway; 0 drops nothing.
  DepartureRule rule(const Link& link, std::size_t longest_chain) const;

 private:
  struct Chain;

  Chain chain_of(OpId op, const IdVector<OpId, Chain>& chains,
                 const IdVector<OpId, char>& rerun) const;
  Bytes resting_bytes(OpId op) const;
  double worth(OpId op) const;

  const Graph& graph_;
  OpId turn_;
  IdVector<OpId, char> repeatable_;
  IdVector<TensorId, char> used_after_turn_;
  IdVector<TensorId, double> worth_;
};

}  // namespace regen::search
