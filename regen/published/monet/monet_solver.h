// The whole search over MONeT's model: annealing and exact neighbourhoods for schedules beside a
// relaxation and branch-and-bound for the bound, on two threads.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "regen/base/limit.h"
#include "regen/published/monet/monet_evaluator.h"
#include "regen/published/monet/monet_mode.h"

namespace regen::published {

struct MonetQuestion {
  const MonetInstance* instance = nullptr;
  MonetMode mode;
  std::vector<char> once;       // by forward node: it may not run again; empty: none
  std::optional<Bytes> budget;  // absent: no limit, and only a short search
  std::uint64_t seed = 0;
  double gap = 0;  // a proof within this fraction of the objective is enough
  // Gets the best objective so far, if any, and the bound, in ticks; from one thread at a time.
  std::function<void(std::optional<double>, double)> on_progress;
};

struct MonetAnswer {
  std::optional<MonetSolution> solution;  // judged by evaluate_monet: no violation
  Ticks objective = 0;
  double bound = 0;         // ticks, proven
  bool infeasible = false;  // proven
  std::string note;

  bool optimal() const { return solution && bound >= static_cast<double>(objective); }
};

Result<MonetAnswer> solve_monet(const MonetQuestion& question, Effort& effort);

}  // namespace regen::published
