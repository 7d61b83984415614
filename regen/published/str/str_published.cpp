#include "regen/published/str/str_published.h"

#include <algorithm>
#include <limits>

#include "regen/search/exact/stage_problem.h"
#include "regen/search/judge.h"

namespace regen::published {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostOps = 96;
constexpr double kMostReturns = 5;  // of one host copy

class PublishedModel {
 public:
  PublishedModel(const search::Problem& problem, const search::StageProblem& stages)
      : problem_(problem), stages_(stages), size_(stages.num_ops) {
    const auto budget = static_cast<double>(*problem.budget - stages.fixed_bytes);
    unit_ = std::max(1.0, budget / 1000);
    cost_scale_ = stages.base_cost > 0 ? stages.base_cost / 1000 : 1;
    add_columns(budget / unit_);
    add_logic();
    if (problem.link.can_move()) add_swaps();
    add_memory();
  }

  StrAnswer solve(Effort& effort) const {
    const search::ModelAnswer answer = program_.solve({}, effort);
    StrAnswer result{.status = answer.status};
    if (answer.values.empty()) return result;
    const auto read = [&](const Triangle& columns, bool diagonal) {
      StageMatrix matrix(size_);
      for (std::size_t t = 0; t < size_; ++t) {
        if (diagonal) matrix.set(t, t);
        for (std::size_t i = 0; i < t; ++i) {
          if (answer.values[static_cast<std::size_t>(at(columns, t, i))] > 0.5) matrix.set(t, i);
        }
      }
      return matrix;
    };
    result.matrices = {read(run_, true), read(kept_, false), read(out_, false), read(in_, false)};
    result.cost = stages_.base_cost + answer.objective * cost_scale_;
    return result;
  }

 private:
  // Columns of a matrix below its diagonal, row by row.
  using Triangle = int;

  static int at(Triangle first, std::size_t t, std::size_t i) {
    return first + static_cast<int>(t * (t - 1) / 2 + i);
  }

  // Op i of stage t: on the diagonal it runs for certain.
  void add_run(std::vector<search::Term>& terms, double& constant, std::size_t t, std::size_t i,
               double weight) const {
    if (i == t) {
      constant += weight;
    } else {
      terms.push_back({at(run_, t, i), weight});
    }
  }

  double bytes(std::size_t i) const {
    return static_cast<double>(stages_.bytes[search::ValueId(i)]) / unit_;
  }

  // The stage in which a copy that starts in stage t is done; the number of stages if none is.
  std::size_t done(std::size_t t, std::size_t i, double bandwidth) const {
    double left = static_cast<double>(stages_.bytes[search::ValueId(i)]) / bandwidth;
    for (std::size_t s = t; s < size_; ++s) {
      left -= stages_.first_cost[OpId(s)];
      if (left <= 0) return s;
    }
    return size_;
  }

  void add_columns(double budget) {
    const bool moves = problem_.link.can_move() && problem_.host_budget.value_or(1) > 0;
    const auto add_triangle = [&](const auto& cost, const auto& allowed) {
      const Triangle first = program_.num_columns();
      for (std::size_t t = 0; t < size_; ++t) {
        for (std::size_t i = 0; i < t; ++i) {
          program_.add_column(cost(i), 0, allowed(t, i) ? 1 : 0, true);
        }
      }
      return first;
    };
    const auto free = [](std::size_t) { return 0.0; };
    run_ =
        add_triangle([&](std::size_t i) { return stages_.rerun_cost[OpId(i)] / cost_scale_; },
                     [&](std::size_t, std::size_t i) { return stages_.repeatable[OpId(i)] != 0; });
    kept_ = add_triangle(free, [](std::size_t, std::size_t) { return true; });
    const auto in_time = [&](double bandwidth) {
      return [this, bandwidth, moves](std::size_t t, std::size_t i) {
        return moves && done(t, i, bandwidth) + 1 < size_;
      };
    };
    out_ = add_triangle(free, in_time(problem_.link.to_host));
    in_ = add_triangle(free, in_time(problem_.link.to_device));
    for (std::size_t t = 0; t < size_; ++t) {
      memory_.push_back(program_.num_columns());
      for (std::size_t k = 0; k <= t; ++k) program_.add_column(0, 0, budget, false);
    }
  }

  void at_most(const std::vector<search::Term>& terms, double high) {
    program_.add_row(-kInfinity, high, terms);
  }

  void add_logic() {
    for (std::size_t t = 0; t < size_; ++t) {
      for (std::size_t i = 0; i <= t; ++i) {
        for (search::ValueId v : stages_.reads[OpId(i)]) {
          std::vector<search::Term> terms{{at(kept_, t, v.index()), -1}};
          double constant = 0;
          add_run(terms, constant, t, i, 1);
          add_run(terms, constant, t, v.index(), -1);
          at_most(terms, -constant);
        }
      }
      for (std::size_t i = 0; i <= t && t + 1 < size_; ++i) {
        std::vector<search::Term> terms{{at(kept_, t + 1, i), 1}};
        double constant = 0;
        add_run(terms, constant, t, i, -1);
        if (i < t) terms.push_back({at(kept_, t, i), -1});
        for (std::size_t s = i + 1; s <= t; ++s) {
          if (arrives_in(s, t, i)) terms.push_back({at(in_, s, i), -1});
        }
        at_most(terms, -constant);
      }
    }
  }

  // Whether s is the latest stage from which a copy back is done in stage t.
  bool arrives_in(std::size_t s, std::size_t t, std::size_t i) const {
    if (!problem_.link.can_move()) return false;
    return done(s, i, problem_.link.to_device) == t &&
           (s == t || done(s + 1, i, problem_.link.to_device) != t);
  }

  void add_swaps() {
    for (std::size_t i = 0; i + 1 < size_; ++i) {
      std::vector<search::Term> once, balance, often;
      for (std::size_t t = i + 1; t < size_; ++t) {
        once.push_back({at(out_, t, i), 1});
        balance.push_back({at(out_, t, i), 1});
        balance.push_back({at(in_, t, i), -1});
        often.push_back({at(in_, t, i), 1});
        often.push_back({at(out_, t, i), -kMostReturns});
        // It comes back only after its way out has begun.
        std::vector<search::Term> order{{at(in_, t, i), 1}};
        for (std::size_t later = t; later < size_; ++later)
          order.push_back({at(out_, later, i), 1});
        at_most(order, 1);
        // It stays while it leaves.
        const std::size_t gone = done(t, i, problem_.link.to_host);
        if (gone < size_) at_most({{at(out_, t, i), 1}, {at(kept_, gone, i), -1}}, 0);
      }
      at_most(once, 1);
      at_most(balance, 0);
      at_most(often, 0);
    }
    for (const auto& [columns, bandwidth] :
         {std::pair{out_, problem_.link.to_host}, std::pair{in_, problem_.link.to_device}}) {
      for (std::size_t s = 0; s < size_; ++s) at_most(under_way(columns, bandwidth, s), 1);
    }
  }

  // Copies that have started by stage s and are not done before it.
  std::vector<search::Term> under_way(Triangle columns, double bandwidth, std::size_t s) const {
    std::vector<search::Term> terms;
    for (std::size_t t = 1; t <= s; ++t) {
      for (std::size_t i = 0; i < t; ++i) {
        if (done(t, i, bandwidth) >= s) terms.push_back({at(columns, t, i), 1});
      }
    }
    return terms;
  }

  // U[t, 0] is what the stage begins with, what is on its way back, and what op 0 makes; each op
  // adds what it makes once the op before has freed what it was the last to read.
  void add_memory() {
    for (std::size_t t = 0; t < size_; ++t) {
      std::vector<search::Term> start{{memory_[t], -1}};
      double constant = 0;
      add_run(start, constant, t, 0, bytes(0));
      for (std::size_t i = 0; i < t; ++i) start.push_back({at(kept_, t, i), bytes(i)});
      if (problem_.link.can_move()) {
        for (search::Term term : under_way(in_, problem_.link.to_device, t)) {
          term.weight = bytes(value_of(term.column));
          start.push_back(term);
        }
      }
      program_.add_row(-constant, -constant, merged(std::move(start)));
      for (std::size_t k = 0; k < t; ++k) {
        std::vector<search::Term> next{{memory_[t] + static_cast<int>(k), 1},
                                       {memory_[t] + static_cast<int>(k) + 1, -1}};
        constant = 0;
        add_run(next, constant, t, k + 1, bytes(k + 1));
        for (search::ValueId v : stages_.reads[OpId(k)]) {
          next.push_back({add_free(t, v.index(), k), -bytes(v.index())});
        }
        program_.add_row(-constant, -constant, next);
      }
    }
  }

  std::size_t value_of(int column) const {
    int row_first = in_;
    for (std::size_t t = 1;; ++t) {
      if (column < row_first + static_cast<int>(t)) {
        return static_cast<std::size_t>(column - row_first);
      }
      row_first += static_cast<int>(t);
    }
  }

  static std::vector<search::Term> merged(std::vector<search::Term> terms) {
    std::ranges::sort(terms, {}, &search::Term::column);
    std::vector<search::Term> result;
    for (const search::Term& term : terms) {
      if (!result.empty() && result.back().column == term.column) {
        result.back().weight += term.weight;
      } else {
        result.push_back(term);
      }
    }
    return result;
  }

  // Whether i leaves right after op k of stage t: exactly if k runs, no later op of the stage reads
  // i, and the next stage does not begin with it.
  int add_free(std::size_t t, std::size_t i, std::size_t k) {
    const int column = program_.add_column(0, 0, 1, true);
    std::vector<search::Term> hazards;
    double constant = 1;
    add_run(hazards, constant, t, k, -1);
    double most = 1;
    if (t + 1 < size_) {
      hazards.push_back({at(kept_, t + 1, i), 1});
      most += 1;
    }
    for (OpId reader : stages_.readers[search::ValueId(i)]) {
      if (reader.index() <= k || reader.index() > t) continue;
      add_run(hazards, constant, t, reader.index(), 1);
      most += 1;
    }
    // 1 - F <= hazards <= most (1 - F)
    std::vector<search::Term> low = hazards;
    low.push_back({column, 1});
    program_.add_row(1 - constant, kInfinity, low);
    std::vector<search::Term> high = std::move(hazards);
    high.push_back({column, most});
    at_most(high, most - constant);
    return column;
  }

  const search::Problem& problem_;
  const search::StageProblem& stages_;
  const std::size_t size_;
  double unit_ = 1;
  double cost_scale_ = 1;
  search::LinearModel program_;
  Triangle run_ = 0, kept_ = 0, out_ = 0, in_ = 0;
  std::vector<int> memory_;  // the first column of each stage
};

}  // namespace

Result<StrAnswer> solve_published_str(const search::Problem& problem, Effort& effort) {
  const Graph& graph = *problem.graph;
  const search::StageProblem stages =
      search::make_stage_problem(graph, !problem.options.recompute_gradients);
  const auto refuse = [&](const std::string& what) {
    return bad_input("--model published: '" + graph.name() + "' " + what);
  };
  if (!problem.budget) return refuse("has no budget, expected --budget");
  if (stages.num_ops > kMostOps) {
    return refuse("has " + format_count(stages.num_ops, "op") + ", expected at most " +
                  std::to_string(kMostOps));
  }
  if (!stages.exact) return refuse("has ops with several variants, expected one for each");
  for (OpId op : graph.ops()) {
    if (stages.makes[op].size() != 1) {
      return refuse("has an op, '" + graph.name(op) + "', that makes " +
                    format_count(stages.makes[op].size(), "tensor") + ", expected 1");
    }
  }
  return PublishedModel(problem, stages).solve(effort);
}

}  // namespace regen::published
