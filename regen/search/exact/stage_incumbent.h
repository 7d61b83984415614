// The best stage schedule that is known. Starts and roundings of relaxations are offered to it; the
// local search over reuse intervals repairs and improves them.
#pragma once

#include <optional>
#include <vector>

#include "regen/search/exact/stage_problem.h"
#include "regen/search/local/local_search.h"

namespace regen::search {

class StageIncumbent {
 public:
  // Needs a budget. The problem and the effort must outlive it.
  StageIncumbent(const Problem& problem, Effort& effort);
  StageIncumbent(const StageIncumbent&) = delete;
  StageIncumbent& operator=(const StageIncumbent&) = delete;

  // Starts of its own.
  void start();
  // A sequence of ops, over the budget or not.
  void offer(const std::vector<OpId>& sequence);
  // For budgets at which no start could be repaired.
  void start_by_lowering(std::uint64_t seed);
  // Searches for less cost than the best; at most `work`, and not below `goal`.
  void improve(double goal, std::int64_t work);

  bool found() const { return best_.has_value(); }
  double cost() const { return best_->cost; }
  const std::vector<OpId>& sequence() const { return best_->sequence; }

 private:
  struct Schedule {
    std::vector<OpId> sequence;
    double cost = 0;
  };

  void take_from_search();

  const Problem alone_;  // nothing moves, and any cost is of interest
  LocalSearch search_;
  std::uint64_t seed_;
  std::optional<Schedule> best_;
};

}  // namespace regen::search
