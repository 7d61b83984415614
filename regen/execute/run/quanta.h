// A list of instructions cut into quanta: stretches short enough that a job can be stopped between
// any two of them without delay.
//
//   seconds   .4  .3   0  .5  2.0   0  .1       bound 1
//   quanta   [ .4  .3   0 ][ .5 ][ 2.0   0 ][ .1 ]
//
// Each quantum is as long as the bound allows, so there are as few as can be. A single instruction
// that takes longer than the bound is a quantum of its own; what takes no time stays with what it
// follows.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "regen/execute/run/instructions.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::execute {

// Of predicted work that may be on the device when another job requests it, and the parts that this
// is issued in: the more, the closer to it the device is kept.
inline constexpr double kQuantumSeconds = 1e-3;
inline constexpr int kNeighbourhoodParts = 4;
// How many times that may be there while no more urgent job can come (Gate::hurried): enough
// for the device to have work while the host goes from one step to the next.
inline constexpr double kUnhurried = 4;

// The first instruction of each quantum, ascending from 0; empty for an empty list.
std::vector<std::size_t> cut_quanta(std::span<const double> seconds, double bound);

// The quanta that are on the device, oldest first: no longer together than the bound, and where
// one of them is half as long, two that are no longer than twice the bound, so that the device has
// work while the host hears that the first is done. What is longer still is there alone.
class IssuedWork {
 public:
  explicit IssuedWork(double bound = kQuantumSeconds) : bound_(bound) {}

  // How many of the oldest have to be done before a quantum of so many seconds may be issued.
  // `times`: of the bound.
  std::size_t in_the_way_of(double seconds, double times = 1) const;
  // When the oldest ends, if all takes as long as predicted, by the clock of issue().
  double expected_end() const { return quanta_.front().end; }
  void issue(double seconds, double now);
  void finish_oldest() { quanta_.pop_front(); }

 private:
  struct Quantum {
    double seconds;
    double end;
  };
  static bool may_be_together(double seconds, std::size_t quanta, double bound) {
    return quanta == 1 || seconds <= bound || (quanta == 2 && seconds <= 2 * bound);
  }

  double bound_;
  std::deque<Quantum> quanta_;
};

// What each instruction takes on the compute queue, as the graph's measured costs predict it for
// the variant in the plan: zero for all but computes.
std::vector<double> predicted_seconds(const InstructionList& list, const Graph& graph,
                                      const Plan& plan);

}  // namespace regen::execute
