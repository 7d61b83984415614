// Linear and mixed-integer models, solved by HiGHS behind plain numbers. Only this file uses the
// solver: its statuses, limits and tolerances are translated here.
//
// Everything runs on one thread, so that the same counted work gives the same answer everywhere.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "regen/base/limit.h"

namespace regen::search {

struct Term {
  int column = 0;
  double weight = 0;
};

enum class ModelStatus {
  kOptimal,     // within the requested gap
  kInfeasible,  // proven
  kStopped,     // by a limit or an interrupt; there may be values
  kFailed,      // numerical failure: only the bound may be used
};

struct ModelAnswer {
  ModelStatus status = ModelStatus::kFailed;
  std::vector<double> values;         // of the columns; empty if none are known
  std::vector<double> reduced_costs;  // of a relaxation: for fixing columns
  std::vector<double> row_prices;     // of a relaxation: what one more unit on the right side costs
  double objective = 0;               // of `values`
  double bound = 0;                   // proven: no point has a smaller objective
};

struct ColumnValue {
  int column = 0;
  double value = 0;
};

struct MipOptions {
  // Only points with a smaller objective are of interest; without any, the model counts as
  // infeasible.
  double cutoff = std::numeric_limits<double>::infinity();
  double absolute_gap = 0;  // stop when the bound is this close to the best point
  // Columns that are fixed to these values in this run.
  std::vector<ColumnValue> fixed;
  std::function<void(double objective, double bound)> on_progress;
};

// Host bytes that a model of so many columns takes with its rows, in this program and in the solver:
// an estimate, from stage models of ResNet-50 and DenseNet-121.
std::int64_t estimated_model_bytes(std::size_t columns);
// Whether the effort has the host bytes for a model of so many columns, and the time to build and
// relax it. A relaxation that is cut off leaves nothing.
bool can_relax(std::size_t columns, const Effort& effort);

// Minimises the sum of cost * column. All columns have finite bounds.
class LinearModel {
 public:
  LinearModel();
  ~LinearModel();
  // The copy starts where the relaxation of the original ended.
  LinearModel(const LinearModel& other);
  LinearModel(LinearModel&&) noexcept;
  LinearModel& operator=(LinearModel&&) noexcept;

  int add_column(double cost, double low, double high, bool whole);
  // low <= sum of the terms <= high, infinite ends allowed. Columns may not repeat.
  void add_row(double low, double high, std::span<const Term> terms);
  void set_bounds(int column, double low, double high);
  double low(int column) const;
  double high(int column) const;
  int num_columns() const;
  int num_rows() const;

  // Columns are real numbers. Starts from the basis of the last call. The bound is computed here
  // from the row prices: it is valid for any tolerances of the solver, and also after a limit.
  ModelAnswer solve_relaxation(Effort& effort);
  ModelAnswer solve(const MipOptions& options, Effort& effort) const;

  // Integer columns that keep their value of the relaxation at every point below `cutoff`.
  std::vector<ColumnValue> fixed_by_reduced_costs(const ModelAnswer& relaxation,
                                                  double cutoff) const;
  // Fixes these columns permanently; returns their number.
  int fix_by_reduced_costs(const ModelAnswer& relaxation, double cutoff);
  // Work counted for one iteration of the solver: more for larger models.
  std::int64_t work_per_iteration() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace regen::search
