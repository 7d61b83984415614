// The stage problem as a linear model over R and S. Memory rows are added only where a solution
// violates them.
//
// Row (t, k) says what is in memory while op k runs in stage t: values carried in whose op comes
// after k, what k makes and its workspace, and each earlier value that something from k on in this
// stage reads, or that the next stage begins with. For the last kind a column Z stands for the
// greatest of the R and S that hold the value, where there is more than one. No row counts a value
// twice or beyond its last use, so the model's optimum is that of the simulator.
#pragma once

#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "regen/search/exact/linear_model.h"
#include "regen/search/exact/stage_sequence.h"

namespace regen::search {

// A column of the model, or a constant where the graph leaves no choice.
using Ref = int;
constexpr Ref kZero = -1;
constexpr Ref kOne = -2;

// A sum of columns and a constant.
struct Expression {
  std::vector<Term> terms;
  double constant = 0;

  void add(Ref ref, double weight);
  // The same with every column once.
  Expression merged() &&;
};

class StageModel {
 public:
  // `budget` without the fixed bytes. Costs are counted above the base cost.
  StageModel(StageProblem stages, Bytes budget);

  const StageProblem& stages() const { return stages_; }
  LinearModel& linear() { return model_; }

  Ref run(std::size_t stage, OpId op) const;
  Ref kept(std::size_t stage, ValueId v) const;
  double value(Ref ref, const std::vector<double>& values) const;

  // Adds the memory rows that `values` violates, the worst of each stage; returns their number.
  int add_broken_memory_rows(const std::vector<double>& values);
  // The number of re-runs of all these ops together is from `least` to `most`.
  void limit_reruns(std::span<const OpId> ops, double least, double most);
  // expression <= 0
  void add_at_most_zero(Expression expression);

  // From costs above the base to numbers of the model and back.
  double to_model(double extra_cost) const { return extra_cost / cost_scale_; }
  double from_model(double objective) const { return objective * cost_scale_; }

  // The schedule that carries a value where its column of S reaches `threshold`.
  std::optional<std::vector<OpId>> rounded(const std::vector<double>& values,
                                           double threshold) const;

  // How many columns the model of a stage problem would have.
  static std::size_t count_columns(const StageProblem& stages);

 private:
  void add_columns();
  void add_logic();
  void add_at_most(Ref small, Ref first, Ref second);
  void add_memory_row(std::size_t stage, std::size_t point);
  Ref hold(std::size_t stage, ValueId v, std::size_t point);
  std::vector<Ref> holders(std::size_t stage, ValueId v, std::size_t point) const;
  double memory_at(std::size_t stage, std::size_t point, const std::vector<double>& values) const;

  StageProblem stages_;
  Bytes budget_;
  double memory_scale_ = 1;
  double cost_scale_ = 1;
  LinearModel model_;
  IdVector<OpId, int> first_run_column_;      // of stage op + 1
  IdVector<ValueId, int> first_keep_column_;  // of stage producer + 1
  // Z by stage, value and the first reader it stands for.
  std::unordered_map<std::uint64_t, int> holds_;
  std::unordered_set<std::uint64_t> memory_rows_;  // by stage and point
};

}  // namespace regen::search
