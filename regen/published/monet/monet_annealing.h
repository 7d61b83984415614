// Simulated annealing over a coarse description of MONeT's schedules. A reuse interval lies between
// two stages with backward nodes that read a forward tensor. Each interval has one decision: from
// which stage on the tensor is kept (from the beginning: it never leaves), or that it is dropped,
// or that it is dropped and kept again once a recomputation makes it, and until when. Each stage
// has its implementation. Recomputation follows: what a stage needs and does not find is
// recomputed, with everything missing before it. Copies that nothing reads are left out.
#pragma once

#include <optional>

#include "regen/base/limit.h"
#include "regen/base/random.h"
#include "regen/published/monet/monet_search.h"

namespace regen::published {

// How a run goes from hot to cold, relative to what the stages cost at least; prices are for each
// KiB over the budget, relative to that cost for each KiB of the budget.
struct MonetCooling {
  double hot = 0, cold = 0;
  double first_price = 0, last_price = 0;
};
// Bytes over the budget are cheap while it is hot, so that one large tensor can take the place of
// another; but by the time they are expensive it is too cold to choose other large tensors.
constexpr MonetCooling kTolerantCooling{3e-2, 3e-5, 3e-3, 9};
// Bytes are expensive from the start. The runs end in many different local minima, some far below
// those of tolerant runs, most above.
constexpr MonetCooling kStrictCooling{1e-2, 3e-5, 1, 3};

class MonetAnnealing {
 public:
  // Without by-products none is ever made, and no implementation that reads one runs.
  MonetAnnealing(const MonetModel& model, std::uint64_t seed, bool by_products = true);

  // One run from hot to cold in about `steps` steps, from the best choices so far.
  void run(std::int64_t steps, const MonetCooling& cooling, Effort& effort);
  // The cheapest schedule within the budget, if any was met; else the last one.
  const std::optional<MonetSchedule>& best() const { return best_; }
  const MonetStorage& last() const { return accepted_; }

 private:
  // The decision for a tensor in a reuse interval: it is stored from one stage to another, or one
  // of the constants below. It may leave before the interval ends if it was kept for recomputations
  // only; `again`: it is stored once more when a later recomputation makes it.
  struct Course {
    std::int32_t from = 0;
    std::int32_t until = 0;
    bool again = false;
  };
  static constexpr std::int32_t kDrop = -1;
  static constexpr std::int32_t kKeepOnceMade = -2;

  struct ReuseInterval {
    std::uint32_t node = 0;
    std::uint32_t begin = 0, end = 0;  // stages; at `end` the tensor is read, or never again
  };
  struct Choices {
    std::vector<Course> courses;     // by reuse interval
    std::vector<std::uint8_t> ways;  // by stage
  };
  struct Undo {
    std::size_t index = 0;
    bool way = false;
    std::uint8_t old_way = 0;
    Course old;
  };

  void find_intervals();
  void find_free_choices(bool by_products);
  void put_course(std::size_t interval, Course course);
  void take_choices(Choices choices);
  void lay_out_availability();
  void drop_unread_copies();
  void find_made(std::span<std::uint64_t> made, MonetRow available) const;
  Course draw_course(std::size_t interval);
  double rate_everything();
  std::optional<double> rate_changes(double value, double limit);
  void accept();
  void change(std::vector<Undo>& undo);
  void set_way(std::size_t stage, std::size_t way, std::vector<Undo>& undo);
  void set_course(std::size_t interval, Course course, std::vector<Undo>& undo);
  void take_back(const std::vector<Undo>& undo);

  const MonetModel& model_;
  MonetStageRater rater_;
  Random random_;
  double price_ = 0;
  std::size_t words_;
  std::vector<ReuseInterval> intervals_;
  std::vector<std::size_t> first_interval_;  // by node, one more at the end
  std::vector<std::uint32_t>
      interval_at_;  // by stage and node: the interval that follows the stage
  std::vector<std::vector<std::vector<std::uint64_t>>> args_;
  Choices choices_;
  MonetStorage storage_;   // of choices_
  MonetStorage accepted_;  // what ratings_ are of
  std::vector<MonetRating> ratings_;
  std::vector<std::pair<std::size_t, MonetRating>> news_;  // of storage_, where it is different
  // Of choices_, by stage: what is made there in any case, and what stays after it if it is there.
  MonetStorage forced_, keeping_;
  MonetStorage available_;  // scratch
  std::vector<std::uint64_t> made_, wanted_;
  std::vector<std::uint64_t> mandatory_;
  std::vector<std::size_t> free_nodes_;              // whose courses are drawn
  std::vector<std::vector<std::size_t>> free_ways_;  // by stage: which are drawn
  std::optional<MonetSchedule> best_;
  std::optional<Choices> best_choices_;
};

}  // namespace regen::published
