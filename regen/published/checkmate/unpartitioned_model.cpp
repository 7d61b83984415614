#include "regen/published/checkmate/unpartitioned_model.h"

#include "regen/published/options.h"

#include <algorithm>
#include <limits>

#include "regen/search/exact/stage_problem.h"
#include "regen/search/judge.h"

namespace regen::published {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostOps = 64;

class UnpartitionedModel {
 public:
  UnpartitionedModel(const search::StageProblem& stages, Bytes budget, ImposedSchedule schedule)
      : stages_(stages), num_stages_(stages.num_ops), budget_(static_cast<double>(budget)) {
    for (OpId op : stages.graph->ops()) scale_ = std::max(scale_, stages.rerun_cost[op]);
    scale_ = scale_ > 0 ? scale_ / 100 : 1;
    for (OpId op : stages.graph->ops()) {
      first_runs_ += stages.first_cost[op] - stages.rerun_cost[op];
    }
    add_columns();
    add_logic();
    add_cover(schedule);
    for (std::size_t t = 0; t < num_stages_; ++t) {
      for (OpId op : stages.graph->ops()) add_memory_row(t, op);
    }
  }

  UnpartitionedAnswer solve(bool whole, Effort& effort) {
    const search::ModelAnswer answer =
        whole ? program_.solve({}, effort) : program_.solve_relaxation(effort);
    UnpartitionedAnswer result{.status = answer.status};
    result.bound = std::max(0.0, answer.bound * scale_ + first_runs_);
    if (!whole || answer.values.empty()) return result;
    for (std::size_t t = 0; t < num_stages_; ++t) {
      for (OpId op : stages_.graph->ops()) {
        if (answer.values[static_cast<std::size_t>(run(t, op))] > 0.5)
          result.sequence.push_back(op);
      }
    }
    return result;
  }

 private:
  int run(std::size_t stage, OpId op) const {
    return static_cast<int>(stage * stages_.num_ops + op.index());
  }
  // Stages 0 .. T; nothing is there before the first, the outputs after the last.
  int kept(std::size_t stage, search::ValueId v) const {
    return first_kept_ + static_cast<int>(stage * stages_.num_values + v.index());
  }

  void add_columns() {
    for (std::size_t t = 0; t < num_stages_; ++t) {
      for (OpId op : stages_.graph->ops()) {
        program_.add_column(stages_.rerun_cost[op] / scale_, 0, 1, true);
      }
    }
    first_kept_ = program_.num_columns();
    for (std::size_t t = 0; t <= num_stages_; ++t) {
      for (search::ValueId v : IdRange<search::ValueId>(stages_.num_values)) {
        const bool needed = t == num_stages_ && stages_.output[v];
        program_.add_column(0, needed ? 1 : 0, t == 0 ? 0 : 1, true);
      }
    }
  }

  void at_most(std::vector<search::Term> terms, double high) {
    program_.add_row(-kInfinity, high, terms);
  }

  void add_logic() {
    for (std::size_t t = 0; t < num_stages_; ++t) {
      for (OpId op : stages_.graph->ops()) {
        for (search::ValueId v : stages_.reads[op]) {
          at_most({{run(t, op), 1}, {kept(t, v), -1}, {run(t, OpId(stages_.producer[v])), -1}}, 0);
        }
      }
      for (search::ValueId v : IdRange<search::ValueId>(stages_.num_values)) {
        at_most({{kept(t + 1, v), 1}, {kept(t, v), -1}, {run(t, OpId(stages_.producer[v])), -1}},
                0);
      }
    }
  }

  void add_cover(ImposedSchedule schedule) {
    for (OpId op : stages_.graph->ops()) {
      const bool last = op.index() + 1 == stages_.num_ops;
      const bool must = schedule == ImposedSchedule::kCoverAll || last;
      std::vector<search::Term> terms;
      for (std::size_t t = 0; t < num_stages_; ++t) terms.push_back({run(t, op), 1});
      program_.add_row(must ? 1 : 0, stages_.repeatable[op] ? kInfinity : 1, terms);
    }
  }

  // The greatest of what holds v at `op` or later in this stage.
  int hold(std::size_t stage, search::ValueId v, OpId op) {
    const int column = program_.add_column(0, 0, 1, true);
    at_most({{kept(stage + 1, v), 1}, {column, -1}}, 0);
    for (OpId reader : stages_.readers[v]) {
      if (reader >= op) at_most({{run(stage, reader), 1}, {column, -1}}, 0);
    }
    return column;
  }

  void add_memory_row(std::size_t stage, OpId op) {
    std::vector<search::Term> terms;
    const double unit = std::max(1.0, budget_ / 1000);
    double made = static_cast<double>(stages_.workspace[op]) / unit;
    for (search::ValueId v : IdRange<search::ValueId>(stages_.num_values)) {
      const double bytes = static_cast<double>(stages_.bytes[v]) / unit;
      if (bytes == 0) continue;
      const std::size_t producer = stages_.producer[v];
      if (producer == op.index()) made += bytes;
      terms.push_back({producer < op.index() ? hold(stage, v, op) : kept(stage, v), bytes});
    }
    if (made > 0) terms.push_back({run(stage, op), made});
    at_most(terms, budget_ / unit);
  }

  const search::StageProblem& stages_;
  std::size_t num_stages_;
  double budget_;
  double scale_ = 0;
  double first_runs_ = 0;  // what first runs cost more than later ones
  search::LinearModel program_;
  int first_kept_ = 0;
};

}  // namespace

Result<UnpartitionedAnswer> solve_imposed(const search::Problem& problem, bool whole,
                                          Effort& effort) {
  const search::StageProblem stages =
      search::make_stage_problem(*problem.graph, !problem.options.recompute_gradients);
  const ImposedSchedule schedule = options_of(problem).schedule;
  const std::string name(choice_names<ImposedSchedule>()[static_cast<std::size_t>(schedule)]);
  if (!problem.budget) return bad_input("--schedule " + name + ": no budget given, expected one");
  if (stages.num_ops > kMostOps) {
    return bad_input("--schedule " + name + ": '" + problem.graph->name() + "' has " +
                     std::to_string(stages.num_ops) + " ops, expected at most " +
                     std::to_string(kMostOps));
  }
  if (!stages.exact) {
    return bad_input("--schedule " + name + ": '" + problem.graph->name() +
                     "' has ops with several variants, expected one for each");
  }
  UnpartitionedModel program(stages, *problem.budget - stages.fixed_bytes, schedule);
  return program.solve(whole, effort);
}

}  // namespace regen::published
