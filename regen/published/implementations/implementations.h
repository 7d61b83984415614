// Which implementation each op takes, where its variants read other values or make more of them.
//
//   forward    y = relu(x)     alone, or with a packed mask of y besides
//   backward   dx from dy      and x, or and y, or and the mask
//
// A choice is whole: what an op reads is made by the choices of others, so that the op that
// makes a mask follows from the ops that read it. The graph with just the chosen ones is then planned like any
// other; variants of one implementation differ in cost and workspace, or overwrite an input.
#pragma once

#include <optional>
#include <vector>

#include "regen/search/build/variant_view.h"

namespace regen::published {

// Variants of an op that read and make the same.
struct Implementation {
  std::vector<std::size_t> variants;  // by number, those that leave their inputs alone first
  std::vector<TensorId> reads;        // sorted, as are the others; without fixed tensors
  std::vector<TensorId> extras;       // what it makes beyond the op's outputs
  bool overwrites = false;            // an input; no other op may read it afterwards
  double cost = 0;                    // of its cheapest variant
  Bytes own_bytes = 0;  // of the extras, and the least workspace; less what takes an input's place
};

// The number of one of the implementations of each op.
using ChosenImplementations = IdVector<OpId, std::size_t>;

// Whether there is anything to choose.
bool several_implementations(const Graph& graph);

// What can be chosen. The graph must outlive it.
class Implementations {
 public:
  explicit Implementations(const Graph& graph);

  const std::vector<Implementation>& of(OpId op) const { return of_[op]; }
  // Those of the base variants, which all other planners take.
  ChosenImplementations base() const;
  // Those of the first runs of a plan, with what others read of them made.
  std::optional<ChosenImplementations> of_plan(const Plan& plan) const;
  // Gives every op that must make more, or makes what no op reads, the cheapest implementation
  // with the same reads, or else with others, that makes what is read. False if there is none.
  bool settle(ChosenImplementations& chosen) const;
  // Every whole choice, but for those that cost more and take more bytes than one with the same
  // reads; by rising cost. Nothing if there are more than `most`.
  std::optional<std::vector<ChosenImplementations>> all(std::size_t most) const;
  double cost(const ChosenImplementations& chosen) const;
  // Of each op the variants of its implementation, the preferred one first where it is among them.
  Result<search::VariantView> view(const ChosenImplementations& chosen,
                                   const IdVector<OpId, VariantId>* preferred = nullptr) const;

 private:
  void add(OpId op, std::size_t number);
  // By rising cost and falling bytes: those that read this and make what is wanted.
  std::vector<std::size_t> candidates(OpId op, const std::vector<TensorId>& reads,
                                      const std::vector<TensorId>& wanted) const;
  bool is_extra(TensorId t) const { return extra_[t] != 0; }
  bool enumerate(std::size_t ops_left, ChosenImplementations& chosen, std::size_t most,
                 std::vector<ChosenImplementations>& found) const;
  std::vector<TensorId> wanted_of(OpId op, const ChosenImplementations& chosen) const;

  const Graph& graph_;
  IdVector<OpId, std::vector<Implementation>> of_;
  IdVector<TensorId, char> extra_;  // made by some variants of its maker only
};

}  // namespace regen::published
