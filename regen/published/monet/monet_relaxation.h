// MONeT's model with its 0-1 decisions taken as real numbers: a lower bound on what any of its
// schedules costs, and a picture of where a good one may lie.
//
// It is smaller and tighter than the published model, and loses no optimal schedule:
//   - tensors are neither stored nor recomputed after their last use;
//   - exactly one implementation runs; of its products with S only what it reads and is not
//     stored afterwards is left (`used`);
//   - whether a tensor is present after an in-place op follows from the other variables;
//   - algorithms that another beats in ticks and workspace are left out;
//   - what is stored is not recomputed, unless the stage's backward node or a by-product asks;
//   - a memory row of a recomputation counts for each local tensor the larger of "recomputed
//     beside it" and "stored": a family of rows, added where the relaxation breaks them.
//   - what appears between two stages was made there, from what was stored before them or made
//     there as well: rows that stop the relaxation from making a tensor in many small parts, each
//     from the same small part of its input.
#pragma once

#include "regen/published/monet/monet_model.h"
#include "regen/published/monet/monet_storage.h"
#include "regen/search/exact/linear_model.h"

namespace regen::published {

class MonetRelaxation {
 public:
  explicit MonetRelaxation(const MonetModel& model);

  void add_all_memory_rows();
  // Solves, adds broken memory rows and repeats. May be called again to go on.
  void tighten(Effort& effort);
  bool infeasible() const { return infeasible_; }
  bool finished() const { return finished_; }
  // Proven so far, in ticks.
  double bound() const { return bound_; }
  // How far S is from 0 in the last solution, by row; rows 0 to the number of stages.
  double stored(std::size_t t, std::size_t i) const;
  bool has_values() const { return !answer_.values.empty(); }

  // What every schedule cheaper than `cutoff` has in common.
  std::vector<search::ColumnValue> fixed_below(double cutoff) const;
  const search::LinearModel& program() const { return program_; }
  // Takes the bound of a branch-and-bound run over program().
  void raise_bound(double bound) { bound_ = std::max(bound_, bound); }
  MonetStorage storage_of(const std::vector<double>& values, double threshold) const;
  // The columns of a schedule within the budget, everything else decided for the best.
  std::vector<double> values_of(const MonetStorage& storage) const;
  // All columns of stage t: what is stored after it among them.
  struct ColumnRange {
    int begin = 0, end = 0;
  };
  ColumnRange stage_columns(std::size_t t) const { return stage_columns_[t]; }
  // Whether tensor i is stored before stage t; negative where it never is.
  int stored_column(std::size_t t, std::size_t i) const { return stored_[t * nodes_ + i]; }

 private:
  void add_stage_columns(std::size_t t);
  void add_storing_rows(std::size_t t);
  void add_recompute_rows(std::size_t t);
  void add_in_place_rows(std::size_t t);
  void add_backward_rows(std::size_t t);
  void add_memory_row(Kib held, std::vector<search::Term> terms);
  void add_passing_row(std::size_t t, std::size_t node);
  void add_backward_memory_row(std::size_t t);
  void add_recompute_memory_row(std::size_t t, std::size_t node);
  std::vector<search::Term> recompute_memory_terms(std::size_t t, std::size_t node,
                                                   bool strong) const;
  double at(int column) const;
  double row_value(const std::vector<search::Term>& terms) const;
  int add_broken_rows();

  // Tensor `node` is there at the end of stage `end`: read in it, or stored after it.
  struct Demand {
    std::size_t node = 0, begin = 0, end = 0;
    bool read = false;
    double violation = 0;
  };
  // For stages [begin, end]: how much of each tensor can be there at most, and the input that says
  // so (itself: the number of times it is made).
  struct Cover {
    std::vector<double> most;
    std::vector<std::size_t> via;
  };
  void sum_recomputations();
  void cover(std::size_t begin, std::size_t end, Cover& cover) const;
  double demanded(std::size_t node, std::size_t end, bool read) const;
  std::vector<Demand> broken_demands() const;
  void add_provenance_cut(const Demand& demand);
  int add_provenance_cuts();

  int recomputed(std::size_t t, std::size_t i) const { return recomputed_[t * nodes_ + i]; }
  int in_place(std::size_t t, std::size_t i) const { return in_place_[t * nodes_ + i]; }
  std::vector<search::Term> reading(std::size_t t, std::size_t node) const;

  const MonetModel& model_;
  std::size_t nodes_;
  search::LinearModel program_;
  search::ModelAnswer answer_;
  std::vector<double> made_before_;  // by stage and node: recomputations in all earlier stages
  double bound_ = 0;
  bool infeasible_ = false;
  bool finished_ = false;
  // Columns by stage and node; -1 where the value is always 0.
  std::vector<int> recomputed_, stored_, in_place_;
  std::vector<std::vector<int>> ways_;  // by stage; empty with one implementation
  std::vector<std::vector<std::pair<std::size_t, int>>> used_;  // by stage: node and column
  std::vector<std::vector<int>> algorithms_;                    // by stage and node
  std::vector<std::vector<int>> backward_algorithms_;           // by stage
  std::vector<ColumnRange> stage_columns_;
};

}  // namespace regen::published
