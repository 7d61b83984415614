// The linear model of re-runs and transfers: bytes moved in each stage, stalls priced.
//
// Stage t lasts from the end of op t - 1's first run to the end of op t's; one more follows the
// last op. L[t] is its length, and the model minimises their sum. For value v in stage t:
//
//   S[t, v]  on the device when the stage begins, fetches under way included
//   R[t, i]  op i runs again in the stage
//   F[t, v]  a fetch of v is issued in the stage
//   H[t, v]  the fraction of v that is on the host when the stage ends, and N[t, v] the fraction
//            that is fetched during it
//
// A stage is at least as long as its computes; as its copies in each direction; as both together
// where the link has a joint limit; and as the arrival of what op t reads followed by op t. Memory
// is counted while op t runs for the first time: by then all values that the next stage begins with
// are live. Every step list with first runs in the order of the graph is a point of the model with
// L[t] its stage lengths, so the optimum, integral or not, is a lower bound for all of them. It is
// not the simulator's optimum: copies are pieces of any size here, and what happens inside a stage
// has no order (docs/reference/planners.md).
#pragma once

#include <vector>

#include "regen/search/exact/linear_model.h"
#include "regen/search/exact/stage_model.h"
#include "regen/search/local/interval_model.h"
#include "regen/search/planner.h"

namespace regen::search {

struct TransferBound {
  ModelStatus status = ModelStatus::kFailed;
  double bound = 0;            // in the graph's unit
  std::vector<double> values;  // of the relaxation; empty if it was not solved
};

class TransferModel {
 public:
  // Needs a budget. Stages may be `most_extra` longer than their op, which must be as much as any
  // plan of interest costs above the base.
  TransferModel(const Problem& problem, const StageProblem& stages, double most_extra);

  TransferBound relax(Effort& effort);

  // A value is resident in an interval if at least a fraction `threshold` of it is on the device, or
  // on the host for a later use, where the interval ends; it is moved if more of it is on the host
  // before.
  Decisions rounded(const IntervalModel& model, const std::vector<double>& values,
                    double threshold) const;

  static std::size_t count_columns(const StageProblem& stages);

 private:
  // Columns of one value or op for consecutive stages.
  struct Columns {
    std::size_t first_stage = 0;
    std::size_t count = 0;
    int first = 0;
  };

  void add_columns(double most_extra);
  void add_availability();
  void add_transfers();
  void add_lengths();
  void add_memory();
  Columns add_range(std::size_t first_stage, std::size_t last_stage, double high);
  Ref at(const Columns& columns, std::size_t stage) const;
  // On the device at some moment of the stage.
  Expression presence(std::size_t stage, ValueId v) const;
  void require_presence(std::size_t stage, ValueId v, Ref by);
  void at_least_zero(Expression expression);
  bool may_move(ValueId v) const;
  // The fractions of a value at the start of each stage of its columns.
  struct Fractions {
    std::vector<double> here, there;
  };
  Fractions fractions(ValueId v, const std::vector<double>& values) const;

  const Problem& problem_;
  const StageProblem& stages_;
  Bytes budget_;
  double cost_scale_;
  bool moves_;
  LinearModel model_;
  std::vector<int> length_;  // of stages 0..num_ops
  IdVector<OpId, Columns> run_;
  IdVector<ValueId, Columns> kept_, fetched_, on_host_, arrived_;
};

}  // namespace regen::search
