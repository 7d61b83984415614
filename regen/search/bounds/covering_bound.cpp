#include "regen/search/bounds/covering_bound.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "regen/base/tolerance.h"
#include "regen/search/bounds/guaranteed_liveness.h"
#include "regen/search/exact/linear_model.h"

namespace regen::search {
namespace {

constexpr int kMostRounds = 80;
constexpr std::size_t kRowsPerRound = 4;

class CoveringModel {
 public:
  CoveringModel(const Graph& graph, const Link& link, Bytes budget, Bytes host_budget)
      : graph_(graph),
        live_(graph),
        link_(link),
        budget_(static_cast<double>(budget)),
        host_budget_(host_budget) {
    add_up_costs();
    make_columns();
    add_dependencies();
  }

  CoveringBound bound(Effort& effort) {
    double best = base_;
    price_.assign(graph_.num_ops(), 0);
    for (int round = 0; round < kMostRounds; ++round) {
      const std::vector<std::size_t> broken = broken_rows();
      if (broken.empty() || effort.exhausted()) break;
      for (const std::size_t op : broken) add_memory_rows(OpId(op));
      const ModelAnswer answer = program_.solve_relaxation(effort);
      if (answer.status == ModelStatus::kInfeasible) {
        best = std::numeric_limits<double>::infinity();
        price_.assign(graph_.num_ops(), 0);
        break;
      }
      if (base_ + answer.bound > best) {
        best = base_ + answer.bound;
        take_prices(answer.row_prices);
      }
      if (answer.status != ModelStatus::kOptimal) break;
      values_ = answer.values;
    }
    std::vector<MemoryRow> rows = rows_that_bind();
    values_.resize(graph_.num_ops());
    return {best, std::move(values_), std::move(rows)};
  }

 private:
  void add_up_costs() {
    for (OpId op : graph_.ops()) {
      base_ += cheapest_run(graph_, op);
      again_cost_.push_back(cheapest_rerun(graph_, op));
    }
  }

  void make_columns() {
    for (OpId op : graph_.ops()) {
      program_.add_column(again_cost_[op.index()], 0, may_run_again(op) ? 1 : 0, false);
    }
    // Costs grow with the square of the ops at most; a wait that long is never needed.
    waiting_ = program_.add_column(1, 0, 1e3 * (base_ + 1), false);
    values_.assign(graph_.num_ops() + 1, 0);
  }

  bool may_run_again(OpId op) const {
    return graph_.recomputable(op) && graph_.mutates(op).empty();
  }

  void add_dependencies() {
    for (OpId op : graph_.ops()) {
      Bytes made = 0;
      for (VariantId v : graph_.variants(op)) {
        Bytes sum = 0;
        for (TensorId t : graph_.makes(v)) sum += graph_.bytes(t);
        made = std::max(made, sum);
      }
      for (TensorId t : graph_.inputs(op)) {
        const bool useless_later = !graph_.fixed(t) && graph_.kind(t) != TensorKind::kOutput &&
                                   reads_always(graph_, op, t) && live_.reads_last(op, t);
        if (!useless_later || graph_.bytes(t) < made || made == 0) continue;
        const Term terms[] = {{static_cast<int>(op.index()), -1},
                              {static_cast<int>(graph_.producer(t).index()), 1}};
        program_.add_row(0, std::numeric_limits<double>::infinity(), terms);
      }
    }
  }

  // How many bytes could be away at an op without any overhead, and more for each unit of it.
  struct Away {
    double bytes = 0;
    double per_overhead = 0;
  };
  std::vector<Away> ways(OpId op) const {
    if (!link_.can_move()) return {{}};
    std::vector<Away> ways{{link_.to_host * live_.cost_before(op), link_.to_host},
                           {link_.to_device * live_.cost_from(op), link_.to_device}};
    if (host_budget_ < kMaxBytes) ways.push_back({static_cast<double>(host_budget_), 0});
    return ways;
  }

  // Bytes by which each op is over the budget with what the present solution drops.
  std::vector<std::size_t> broken_rows() const {
    const std::size_t n = graph_.num_ops();
    const std::vector<double> dropped = dropped_at_each();
    double overhead = values_[n];
    for (std::size_t op = 0; op < n; ++op) overhead += again_cost_[op] * values_[op];
    std::vector<std::pair<double, std::size_t>> broken;
    for (std::size_t op = 0; op < n; ++op) {
      double away = std::numeric_limits<double>::infinity();
      for (const Away& way : ways(OpId(op)))
        away = std::min(away, way.bytes + way.per_overhead * overhead);
      const double over = live_.bytes(OpId(op)) - budget_ - dropped[op] - away;
      if (over > kMemoryViolation * budget_ + 1) broken.emplace_back(-over, op);
    }
    std::ranges::sort(broken);
    std::vector<std::size_t> worst;
    for (const auto& [over, op] : broken) {
      if (worst.size() < kRowsPerRound) worst.push_back(op);
    }
    return worst;
  }

  // Bytes that the present solution has dropped while each op runs: not what that op reads.
  std::vector<double> dropped_at_each() const {
    return live_.spare_bytes(std::span(values_).first(graph_.num_ops()));
  }

  void add_memory_rows(OpId op) {
    std::vector<double> eviction(graph_.num_ops(), 0);
    for (TensorId t : live_.spare(op)) {
      eviction[graph_.producer(t).index()] += static_cast<double>(graph_.bytes(t));
    }
    for (const Away& way : ways(op)) add_row(op, eviction, way);
  }

  void add_row(OpId op, const std::vector<double>& eviction, const Away& way) {
    // In units of the budget, so that the solver sees numbers near one.
    std::vector<Term> terms;
    for (OpId p : graph_.ops()) {
      const double weight = eviction[p.index()] + way.per_overhead * again_cost_[p.index()];
      if (weight > 0) terms.push_back({static_cast<int>(p.index()), weight / budget_});
    }
    if (way.per_overhead > 0) terms.push_back({waiting_, way.per_overhead / budget_});
    if (terms.empty()) return;
    program_.add_row((live_.bytes(op) - budget_ - way.bytes) / budget_,
                     std::numeric_limits<double>::infinity(), terms);
    row_ops_.resize(static_cast<std::size_t>(program_.num_rows()));
    row_ops_.back() = op;
  }

  // The prices in bytes and by op: an op may have a row for each way to be away.
  void take_prices(const std::vector<double>& row_prices) {
    price_.assign(graph_.num_ops(), 0);
    for (std::size_t r = 0; r < std::min(row_prices.size(), row_ops_.size()); ++r) {
      if (row_ops_[r].valid() && row_prices[r] > 0) {
        price_[row_ops_[r].index()] += row_prices[r] / budget_;
      }
    }
  }

  std::vector<MemoryRow> rows_that_bind() const {
    const std::vector<double> dropped = dropped_at_each();
    std::vector<MemoryRow> rows;
    for (OpId op : graph_.ops()) {
      const std::size_t j = op.index();
      if (price_[j] <= 0) continue;
      const double away = std::max(0.0, live_.bytes(op) - budget_ - dropped[j]);
      rows.push_back({op, price_[j], live_.bytes(op), dropped[j], away});
    }
    return rows;
  }

  const Graph& graph_;
  const GuaranteedLiveness live_;
  const Link& link_;
  const double budget_;
  const Bytes host_budget_;
  double base_ = 0;
  std::vector<double> again_cost_;  // of one more run of each op
  LinearModel program_;
  int waiting_ = 0;
  std::vector<OpId> row_ops_;  // the op of each memory row; none for dependencies
  std::vector<double> values_;
  std::vector<double> price_;  // of a byte at each op
};

}  // namespace

CoveringBound covering_bound(const Graph& graph, const Link& link, Bytes budget, Effort& effort,
                             Bytes host_budget) {
  return CoveringModel(graph, link, budget, host_budget).bound(effort);
}

}  // namespace regen::search
