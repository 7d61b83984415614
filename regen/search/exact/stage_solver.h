// The exact optimum of the stage problem: a search for good schedules, a relaxation that excludes
// better ones, and branching where the two do not meet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regen/search/exact/rerun_branching.h"
#include "regen/search/exact/stage_incumbent.h"
#include "regen/search/exact/stage_model.h"
#include "regen/search/judge.h"

namespace regen::search {

struct StageAnswer {
  PlanStatus status = PlanStatus::kUnknown;
  std::vector<OpId> sequence;  // empty if no schedule within the limits is known
  double cost = 0;
  double bound = 0;  // no stage schedule within the budget costs less
  std::string note;
};

class StageSolver {
 public:
  // Needs a budget. `starts` are sequences of ops that may be good, over the budget or not.
  StageSolver(const Problem& problem, Effort& effort);

  StageAnswer solve(const std::vector<std::vector<OpId>>& starts);

 private:
  // A part of the model, and a lower bound on the cost of its schedules.
  struct OpenPart {
    StageModel model;
    double bound = 0;
  };

  void search(const std::vector<std::vector<OpId>>& starts);
  void search_deeper();
  void relax(int provenance_rounds);
  void split();
  bool set_aside(const RerunBranching& split);
  void branch();
  bool branch_here();
  void make_model();
  bool strengthen(const ModelAnswer& relaxation, bool origins);
  void offer(const std::optional<std::vector<OpId>>& sequence);
  void raise_bound(double bound);
  void exclude_the_rest();
  void tell() const;

  // Where a plan is given, the caller has searched, and will go on from what is found here.
  bool searches_itself() const { return problem_.start == nullptr; }
  bool has_incumbent() const { return incumbent_.found(); }
  double incumbent() const { return incumbent_.cost(); }
  bool within_cap() const {
    return has_incumbent() && (!problem_.cost_cap || incumbent() <= *problem_.cost_cap);
  }
  // Only schedules below this cost are of interest: the incumbent's cost minus the least possible
  // gain and the requested gap, at most the cap.
  double cutoff() const;
  double model_cutoff() const { return model_->to_model(cutoff() - stages_.base_cost); }
  double cost_of(double objective) const {
    return stages_.base_cost + model_->from_model(objective);
  }
  bool closed() const;
  bool done() const { return closed() || excluded_ || effort_.exhausted(); }

  const Problem& problem_;
  Effort& effort_;
  StageProblem stages_;
  Bytes budget_;
  double step_;  // costs are multiples of it; 0: no such number
  StageIncumbent incumbent_;
  std::optional<StageModel> model_;
  std::vector<double> relaxed_;      // the last solution of the relaxation
  std::vector<OpenPart> set_aside_;  // parts that were split off and are not excluded
  double bound_;
  bool excluded_ = false;  // proven: nothing below the cutoff
};

}  // namespace regen::search
