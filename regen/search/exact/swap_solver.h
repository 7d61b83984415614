// The best recompute+swap plan, with a proven bound: local search over reuse intervals, the
// relaxation of the transfer model, and for small graphs a search over all step lists that ends
// with the optimum. Without a plan to start from, quick planners are asked first.
#pragma once

#include <string>

#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/exact/transfer_model.h"
#include "regen/search/judge.h"
#include "regen/search/local/local_search.h"

namespace regen::search {

class SwapSolver {
 public:
  // S is a matrix of ops by values; larger graphs are not for this class.
  static constexpr std::size_t kMostOps = 20'000;

  // Needs a budget. The problem must outlive it.
  SwapSolver(const Problem& problem, Effort& effort);

  // Exact, anytime.
  Proposal solve();
  // One relaxation, rounded at several thresholds; schedules over the budget are repaired
  // (published/str/str.cpp).
  Proposal round();

 private:
  void offer_search();
  void offer_plan(Result<Proposal> proposal);
  // Where a plan is given, the caller has searched, and will go on from what is found here.
  bool searches_itself() const { return !starts_from_plan(problem_); }
  void ask_others();
  void start_search();
  void improve(std::int64_t work);
  void search_all_steps();
  void exclude_the_rest();
  void relax();
  void offer_rounded(const TransferModel& model, const std::vector<double>& values);
  void raise_bound(double bound);
  void tell();
  Proposal proposal();

  bool found() const { return best_.best() && within_limits(problem_, best_.best()->simulation); }
  double cost() const { return best_.best()->simulation.cost; }
  // Nothing better exists, or nothing better by the requested gap.
  bool closed() const;
  // Plans of this cost and above are of no interest.
  double cutoff() const;
  // What a plan of interest may cost above the base.
  double most_extra() const;

  const Problem& problem_;
  const Graph& graph_;
  Effort& effort_;
  StageProblem stages_;
  const Problem uncapped_;  // any cost is of interest to the local search
  LocalSearch search_;
  std::uint64_t seed_;
  BestCandidate best_;
  double bound_ = 0;
  bool excluded_ = false;  // proven: nothing fits
  std::string note_;
};

}  // namespace regen::search
