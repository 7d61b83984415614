#include "regen/planners/covering_bound.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "regen/planners/linear_program.h"

namespace regen {
namespace {

constexpr int kMostRounds = 80;
constexpr std::size_t kRowsPerRound = 4;

class CoveringProgram {
 public:
  CoveringProgram(const Graph& graph, const Link& link, Bytes budget)
      : graph_(graph), link_(link), budget_(static_cast<double>(budget)) {
    measure();
    make_columns();
    add_dependencies();
  }

  CoveringBound bound(Effort& effort) {
    double best = base_;
    for (int round = 0; round < kMostRounds; ++round) {
      const std::vector<std::size_t> broken = broken_rows();
      if (broken.empty() || effort.exhausted()) break;
      for (const std::size_t op : broken) add_memory_rows(OpId(op));
      const ProgramAnswer answer = program_.solve_relaxation(effort);
      if (answer.status == ProgramStatus::kInfeasible) {
        best = std::numeric_limits<double>::infinity();
        break;
      }
      best = std::max(best, base_ + answer.bound);
      if (answer.status != ProgramStatus::kOptimal) break;
      values_ = answer.values;
    }
    values_.resize(graph_.num_ops());
    return {best, std::move(values_)};
  }

 private:
  double cheapest(OpId op, bool again) const {
    double least = std::numeric_limits<double>::infinity();
    for (VariantId v : graph_.variants(op)) {
      least = std::min(least, again ? graph_.rerun_cost(v) : graph_.cost(v));
    }
    return least;
  }

  bool reads_always(OpId op, TensorId t) const {
    return std::ranges::all_of(graph_.variants(op), [&](VariantId v) {
      return std::ranges::find(graph_.reads(v), t) != graph_.reads(v).end();
    });
  }

  // What an op takes beyond what it reads, in the variant that takes least.
  double own_bytes(OpId op) const {
    Bytes least = std::numeric_limits<Bytes>::max();
    for (VariantId v : graph_.variants(op)) {
      Bytes sum = graph_.workspace(v);
      for (TensorId t : graph_.makes(v).subspan(graph_.overwrites(v).valid() ? 1 : 0)) {
        sum += graph_.bytes(t);
      }
      least = std::min(least, sum);
    }
    return static_cast<double>(least);
  }

  void measure() {
    const std::size_t n = graph_.num_ops();
    needed_to_ = IdVector<TensorId, std::size_t>(graph_.num_tensors(), 0);
    must_read_.resize(n);
    before_.assign(n + 1, 0);
    live_.assign(n, static_cast<double>(graph_.fixed_bytes()));
    for (OpId op : graph_.ops()) {
      before_[op.index() + 1] = before_[op.index()] + cheapest(op, /*again=*/false);
      live_[op.index()] += own_bytes(op);
      for (TensorId t : graph_.inputs(op)) {
        if (graph_.fixed(t) || !reads_always(op, t)) continue;
        needed_to_[t] = op.index();
        must_read_[op.index()].push_back(t);
      }
    }
    base_ = before_[n];
    std::vector<double> change(n + 1, 0);
    for (TensorId t : graph_.tensors()) {
      if (graph_.fixed(t)) continue;
      // Only what every variant makes is there for certain; outputs stay to the end.
      if (graph_.kind(t) == TensorKind::kOutput) needed_to_[t] = n;
      if (!certain(t)) needed_to_[t] = 0;
      const std::size_t from = graph_.producer(t).index() + 1;
      if (needed_to_[t] < from) continue;
      change[from] += static_cast<double>(graph_.bytes(t));
      change[std::min(needed_to_[t] + 1, n)] -= static_cast<double>(graph_.bytes(t));
    }
    double sum = 0;
    for (std::size_t op = 0; op < n; ++op) live_[op] += sum += change[op];
  }

  bool certain(TensorId t) const {
    const auto outputs = graph_.outputs(graph_.producer(t));
    return std::ranges::find(outputs, t) != outputs.end();
  }

  void make_columns() {
    for (OpId op : graph_.ops()) {
      program_.add_column(cheapest(op, /*again=*/true), 0, may_run_again(op) ? 1 : 0, false);
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
                                   graph_.consumers(t).back() == op && reads_always(op, t);
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
  std::vector<Away> ways(std::size_t op) const {
    if (!link_.can_move()) return {{}};
    return {{link_.to_host * before_[op], link_.to_host},
            {link_.to_device * (base_ - before_[op]), link_.to_device}};
  }

  // Bytes by which each op is over the budget with what the present solution drops.
  std::vector<std::size_t> broken_rows() const {
    const std::size_t n = graph_.num_ops();
    std::vector<double> dropped(n + 1, 0);
    for (TensorId t : graph_.tensors()) add_dropped(t, dropped);
    double overhead = values_[n];
    for (OpId op : graph_.ops()) overhead += cheapest(op, true) * values_[op.index()];
    std::vector<std::pair<double, std::size_t>> broken;
    double sum = 0;
    for (std::size_t op = 0; op < n; ++op) {
      sum += dropped[op];
      double kept = 0;  // of what is dropped elsewhere, but read here
      for (TensorId t : must_read_[op]) kept += dropped_bytes(t);
      double away = std::numeric_limits<double>::infinity();
      for (const Away& way : ways(op))
        away = std::min(away, way.bytes + way.per_overhead * overhead);
      const double over = live_[op] - budget_ - (sum - kept) - away;
      if (over > 1e-6 * budget_ + 1) broken.emplace_back(-over, op);
    }
    std::ranges::sort(broken);
    std::vector<std::size_t> worst;
    for (const auto& [over, op] : broken) {
      if (worst.size() < kRowsPerRound) worst.push_back(op);
    }
    return worst;
  }

  double dropped_bytes(TensorId t) const {
    return static_cast<double>(graph_.bytes(t)) * values_[graph_.producer(t).index()];
  }

  void add_dropped(TensorId t, std::vector<double>& change) const {
    if (graph_.fixed(t)) return;
    const std::size_t from = graph_.producer(t).index() + 1;
    if (needed_to_[t] < from) return;
    change[from] += dropped_bytes(t);
    change[std::min(needed_to_[t] + 1, graph_.num_ops())] -= dropped_bytes(t);
  }

  void add_memory_rows(OpId op) {
    std::vector<double> relief(graph_.num_ops(), 0);
    for (TensorId t : graph_.tensors()) {
      if (graph_.fixed(t)) continue;
      const std::size_t maker = graph_.producer(t).index();
      const bool across = maker < op.index() && op.index() <= needed_to_[t];
      if (across) relief[maker] += static_cast<double>(graph_.bytes(t));
    }
    for (TensorId t : must_read_[op.index()]) {
      relief[graph_.producer(t).index()] -= static_cast<double>(graph_.bytes(t));
    }
    for (const Away& way : ways(op.index())) add_row(op, relief, way);
  }

  void add_row(OpId op, const std::vector<double>& relief, const Away& way) {
    // In units of the budget, so that the solver sees numbers near one.
    std::vector<Term> terms;
    for (OpId p : graph_.ops()) {
      const double weight = relief[p.index()] + way.per_overhead * cheapest(p, true);
      if (weight > 0) terms.push_back({static_cast<int>(p.index()), weight / budget_});
    }
    if (way.per_overhead > 0) terms.push_back({waiting_, way.per_overhead / budget_});
    if (terms.empty()) return;
    program_.add_row((live_[op.index()] - budget_ - way.bytes) / budget_,
                     std::numeric_limits<double>::infinity(), terms);
  }

  const Graph& graph_;
  const Link& link_;
  const double budget_;
  double base_ = 0;
  std::vector<double> before_;  // the cost of all ops before each
  std::vector<double> live_;    // bytes that are there at each op if nothing is dropped or away
  IdVector<TensorId, std::size_t> needed_to_;  // the last op that cannot do without it
  std::vector<std::vector<TensorId>> must_read_;
  LinearProgram program_;
  int waiting_ = 0;
  std::vector<double> values_;
};

}  // namespace

CoveringBound covering_bound(const Graph& graph, const Link& link, Bytes budget, Effort& effort) {
  return CoveringProgram(graph, link, budget).bound(effort);
}

}  // namespace regen
