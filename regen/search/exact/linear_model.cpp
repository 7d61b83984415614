#include "regen/search/exact/linear_model.h"

#include <Highs.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "regen/base/tolerance.h"

namespace regen::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void set_common_options(Highs& highs) {
  highs.setOptionValue("output_flag", false);
  highs.setOptionValue("threads", 1);
  highs.setOptionValue("parallel", "off");
  highs.setOptionValue("random_seed", 0);
}

// HiGHS reports iterations since the start of a run; work is what came since the last report.
class IterationMeter {
 public:
  IterationMeter(Effort& effort, std::int64_t work_each) : effort_(effort), work_each_(work_each) {}
  void report(std::int64_t total) {
    if (total > counted_) effort_.add((total - counted_) * work_each_);
    counted_ = std::max(counted_, total);
  }

 private:
  Effort& effort_;
  std::int64_t work_each_;
  std::int64_t counted_ = 0;
};

}  // namespace

struct LinearModel::State {
  std::vector<double> cost, low, high;
  std::vector<HighsVarType> type;
  std::vector<double> row_low, row_high;
  std::vector<HighsInt> start{0};
  std::vector<HighsInt> index;
  std::vector<double> weight;

  // The solver of the relaxation, kept for its basis, and how much of the above it has.
  std::unique_ptr<Highs> relaxation;
  std::size_t columns_passed = 0;
  std::size_t rows_passed = 0;
  std::vector<int> bounds_changed;

  State() = default;
  State(const State& other);
  void pass_news();
  double bound_from_prices(const std::vector<double>& prices, std::vector<double>* reduced) const;
  HighsLp whole_model() const;
};

// A solver cannot be copied; its model and its basis can.
LinearModel::State::State(const State& other)
    : cost(other.cost),
      low(other.low),
      high(other.high),
      type(other.type),
      row_low(other.row_low),
      row_high(other.row_high),
      start(other.start),
      index(other.index),
      weight(other.weight),
      columns_passed(other.columns_passed),
      rows_passed(other.rows_passed),
      bounds_changed(other.bounds_changed) {
  if (!other.relaxation) return;
  relaxation = std::make_unique<Highs>();
  set_common_options(*relaxation);
  relaxation->passModel(other.relaxation->getLp());
  relaxation->setBasis(other.relaxation->getBasis());
}

std::int64_t estimated_model_bytes(std::size_t columns) {
  constexpr std::int64_t kBytesPerColumn = 2048;
  return kBytesPerColumn * static_cast<std::int64_t>(columns);
}

bool can_relax(std::size_t columns, const Effort& effort) {
  // Stage models of MobileNet, ViT-B and ResNet-50 take 28, 30 and 60 microseconds a column on a Xeon.
  constexpr double kSecondsPerColumn = 30e-6;
  return effort.has_room_for(estimated_model_bytes(columns)) &&
         effort.seconds_left() >= kSecondsPerColumn * static_cast<double>(columns);
}

LinearModel::LinearModel() : state_(std::make_unique<State>()) {}
LinearModel::~LinearModel() = default;
LinearModel::LinearModel(const LinearModel& other)
    : state_(std::make_unique<State>(*other.state_)) {}
LinearModel::LinearModel(LinearModel&&) noexcept = default;
LinearModel& LinearModel::operator=(LinearModel&&) noexcept = default;

int LinearModel::add_column(double cost, double low, double high, bool whole) {
  state_->cost.push_back(cost);
  state_->low.push_back(low);
  state_->high.push_back(high);
  state_->type.push_back(whole ? HighsVarType::kInteger : HighsVarType::kContinuous);
  return num_columns() - 1;
}

void LinearModel::add_row(double low, double high, std::span<const Term> terms) {
  for (const Term& term : terms) {
    state_->index.push_back(term.column);
    state_->weight.push_back(term.weight);
  }
  state_->start.push_back(static_cast<HighsInt>(state_->index.size()));
  state_->row_low.push_back(low);
  state_->row_high.push_back(high);
}

void LinearModel::set_bounds(int column, double low, double high) {
  state_->low[static_cast<std::size_t>(column)] = low;
  state_->high[static_cast<std::size_t>(column)] = high;
  if (static_cast<std::size_t>(column) < state_->columns_passed) {
    state_->bounds_changed.push_back(column);
  }
}

double LinearModel::low(int column) const {
  return state_->low[static_cast<std::size_t>(column)];
}
double LinearModel::high(int column) const {
  return state_->high[static_cast<std::size_t>(column)];
}
int LinearModel::num_columns() const {
  return static_cast<int>(state_->cost.size());
}
int LinearModel::num_rows() const {
  return static_cast<int>(state_->row_low.size());
}

void LinearModel::State::pass_news() {
  if (!relaxation) {
    relaxation = std::make_unique<Highs>();
    set_common_options(*relaxation);
    HighsLp lp = whole_model();
    lp.integrality_.clear();
    relaxation->passModel(std::move(lp));
  } else {
    const auto new_columns = static_cast<HighsInt>(cost.size() - columns_passed);
    if (new_columns > 0) {
      relaxation->addCols(new_columns, cost.data() + columns_passed, low.data() + columns_passed,
                          high.data() + columns_passed, 0, nullptr, nullptr, nullptr);
    }
    for (const int column : bounds_changed) {
      const auto c = static_cast<std::size_t>(column);
      relaxation->changeColBounds(column, low[c], high[c]);
    }
    for (std::size_t r = rows_passed; r < row_low.size(); ++r) {
      relaxation->addRow(row_low[r], row_high[r], start[r + 1] - start[r], index.data() + start[r],
                         weight.data() + start[r]);
    }
  }
  columns_passed = cost.size();
  rows_passed = row_low.size();
  bounds_changed.clear();
}

HighsLp LinearModel::State::whole_model() const {
  HighsLp lp;
  lp.num_col_ = static_cast<HighsInt>(cost.size());
  lp.num_row_ = static_cast<HighsInt>(row_low.size());
  lp.col_cost_ = cost;
  lp.col_lower_ = low;
  lp.col_upper_ = high;
  lp.row_lower_ = row_low;
  lp.row_upper_ = row_high;
  lp.integrality_ = type;
  lp.a_matrix_.format_ = MatrixFormat::kRowwise;
  lp.a_matrix_.start_ = start;
  lp.a_matrix_.index_ = index;
  lp.a_matrix_.value_ = weight;
  lp.a_matrix_.num_col_ = lp.num_col_;
  lp.a_matrix_.num_row_ = lp.num_row_;
  return lp;
}

// For any prices y of the rows, the least value of c x - y (A x - b) over the box of the columns
// is a lower bound, for each row with the side that its price points to. Rounding errors are
// covered by a margin relative to the sums.
double LinearModel::State::bound_from_prices(const std::vector<double>& prices,
                                             std::vector<double>* reduced) const {
  std::vector<double> rest = cost;
  double bound = 0;
  double magnitude = 0;
  for (std::size_t r = 0; r < prices.size() && r < row_low.size(); ++r) {
    const double side = prices[r] > 0 ? row_low[r] : row_high[r];
    if (prices[r] == 0 || std::isinf(side)) continue;
    bound += prices[r] * side;
    magnitude += std::abs(prices[r] * side);
    for (HighsInt k = start[r]; k < start[r + 1]; ++k) {
      rest[static_cast<std::size_t>(index[static_cast<std::size_t>(k)])] -=
          prices[r] * weight[static_cast<std::size_t>(k)];
    }
  }
  for (std::size_t c = 0; c < rest.size(); ++c) {
    const double least = std::min(rest[c] * low[c], rest[c] * high[c]);
    bound += least;
    magnitude += std::abs(least);
  }
  if (reduced != nullptr) *reduced = std::move(rest);
  return bound - kSummationError * magnitude;
}

ModelAnswer LinearModel::solve_relaxation(Effort& effort) {
  state_->pass_news();
  Highs& highs = *state_->relaxation;
  IterationMeter meter(effort, work_per_iteration());
  highs.zeroAllClocks();
  highs.setOptionValue("time_limit", std::max(0.0, effort.seconds_left()));
  const std::int64_t iterations = std::min<std::int64_t>(effort.work_left() / work_per_iteration(),
                                                         std::numeric_limits<HighsInt>::max());
  highs.setOptionValue("simplex_iteration_limit",
                       static_cast<HighsInt>(std::max<std::int64_t>(0, iterations)));
  highs.setCallback([&](int, const std::string&, const HighsCallbackOutput*, HighsCallbackInput* in,
                        void*) { in->user_interrupt = effort.interrupted(); });
  highs.startCallback(HighsCallbackType::kCallbackSimplexInterrupt);
  highs.run();
  meter.report(highs.getInfo().simplex_iteration_count);

  ModelAnswer answer;
  const HighsModelStatus status = highs.getModelStatus();
  const HighsSolution& solution = highs.getSolution();
  if (status == HighsModelStatus::kInfeasible) answer.status = ModelStatus::kInfeasible;
  if (status == HighsModelStatus::kOptimal) answer.status = ModelStatus::kOptimal;
  if (status == HighsModelStatus::kTimeLimit || status == HighsModelStatus::kIterationLimit ||
      status == HighsModelStatus::kInterrupt) {
    answer.status = ModelStatus::kStopped;
  }
  answer.bound = -kInfinity;
  if (solution.dual_valid) {
    answer.bound = state_->bound_from_prices(solution.row_dual, &answer.reduced_costs);
    answer.row_prices = solution.row_dual;
  }
  if (answer.status == ModelStatus::kOptimal && solution.value_valid) {
    answer.values = solution.col_value;
    answer.objective = highs.getInfo().objective_function_value;
  }
  return answer;
}

std::int64_t LinearModel::work_per_iteration() const {
  return 500 + (num_rows() + num_columns()) / 8;
}

std::vector<ColumnValue> LinearModel::fixed_by_reduced_costs(const ModelAnswer& relaxation,
                                                             double cutoff) const {
  const double room = cutoff - relaxation.bound;
  std::vector<ColumnValue> fixed;
  for (std::size_t c = 0; c < relaxation.reduced_costs.size(); ++c) {
    const double price = relaxation.reduced_costs[c];
    if (state_->type[c] != HighsVarType::kInteger || state_->low[c] == state_->high[c]) continue;
    if (std::abs(price) <= room) continue;
    fixed.push_back({static_cast<int>(c), price > 0 ? state_->low[c] : state_->high[c]});
  }
  return fixed;
}

int LinearModel::fix_by_reduced_costs(const ModelAnswer& relaxation, double cutoff) {
  const std::vector<ColumnValue> fixed = fixed_by_reduced_costs(relaxation, cutoff);
  for (const ColumnValue& each : fixed) set_bounds(each.column, each.value, each.value);
  return static_cast<int>(fixed.size());
}

ModelAnswer LinearModel::solve(const MipOptions& options, Effort& effort) const {
  Highs highs;
  set_common_options(highs);
  highs.setOptionValue("time_limit", std::max(0.0, effort.seconds_left()));
  highs.setOptionValue("mip_rel_gap", 0.0);
  highs.setOptionValue("mip_abs_gap", options.absolute_gap);
  if (!std::isinf(options.cutoff)) {
    // A good point is known, so the solver's own heuristics are switched off.
    highs.setOptionValue("objective_bound", options.cutoff);
    highs.setOptionValue("mip_heuristic_effort", 0.0);
  }
  HighsLp lp = state_->whole_model();
  for (const ColumnValue& each : options.fixed) {
    const auto c = static_cast<std::size_t>(each.column);
    lp.col_lower_[c] = lp.col_upper_[c] = each.value;
  }
  highs.passModel(std::move(lp));
  IterationMeter meter(effort, work_per_iteration());
  highs.setCallback(
      [&](int, const std::string&, const HighsCallbackOutput* out, HighsCallbackInput* in, void*) {
        meter.report(out->mip_total_lp_iterations);
        if (options.on_progress) options.on_progress(out->mip_primal_bound, out->mip_dual_bound);
        in->user_interrupt = effort.interrupted() || effort.work_left() <= 0;
      });
  highs.startCallback(HighsCallbackType::kCallbackMipInterrupt);
  highs.run();
  meter.report(highs.getInfo().simplex_iteration_count);

  ModelAnswer answer;
  const HighsModelStatus status = highs.getModelStatus();
  const HighsInfo& info = highs.getInfo();
  answer.bound = info.mip_dual_bound;
  if (status == HighsModelStatus::kOptimal) answer.status = ModelStatus::kOptimal;
  if (status == HighsModelStatus::kInfeasible) answer.status = ModelStatus::kInfeasible;
  if (status == HighsModelStatus::kTimeLimit || status == HighsModelStatus::kInterrupt ||
      status == HighsModelStatus::kSolutionLimit || status == HighsModelStatus::kObjectiveBound) {
    answer.status = ModelStatus::kStopped;
  }
  if (highs.getSolution().value_valid && answer.status != ModelStatus::kInfeasible &&
      info.primal_solution_status == kSolutionStatusFeasible) {
    answer.values = highs.getSolution().col_value;
    answer.objective = info.objective_function_value;
  }
  // Presolving alone may solve a model without regard to the cutoff.
  if (answer.status == ModelStatus::kOptimal && answer.objective >= options.cutoff) {
    answer.status = ModelStatus::kInfeasible;
    answer.values.clear();
  }
  return answer;
}

}  // namespace regen::search
