// Looks for a cheap storage matrix of MONeT's model. Stages touch only through what is stored
// between them, so that the best course of a few tensors over all stages, everything else being
// fixed, is a shortest path over their on-off states: an exact neighbourhood of exponential size.
#pragma once

#include <optional>

#include "regen/base/limit.h"
#include "regen/base/random.h"
#include "regen/published/monet/monet_stage_rating.h"

namespace regen::published {

struct MonetSchedule {
  MonetStorage storage;
  Ticks ticks = 0;
  Kib excess = 0;  // 0: within the budget
};

class MonetSearch {
 public:
  MonetSearch(const MonetModel& model, std::uint64_t seed);

  // Goes on from where the last call ended until `effort` is spent or nothing was found for long.
  void run(Effort& effort);
  // Also accepts a schedule from elsewhere to go on from.
  void offer(const MonetStorage& storage);
  // The cheapest one within the budget.
  const std::optional<MonetSchedule>& best() const { return best_; }

 private:
  // Each piece is stored or not as a whole.
  using Piece = std::vector<std::uint32_t>;
  using Group = std::vector<Piece>;
  struct Path;

  MonetSchedule rated(MonetStorage storage);
  MonetStorage keep_everything(bool with_by_products) const;
  Group draw_group();
  std::uint32_t draw_near(std::uint32_t node);
  Piece draw_piece(std::uint32_t node);
  bool improve(const Group& group, Effort& effort);
  double value(const MonetSchedule& schedule) const;
  bool descend(int patience, Effort& effort);
  void shake(Effort& effort);

  const MonetModel& model_;
  MonetStageRater rater_;
  Random random_;
  double price_;  // ticks for each KiB over the budget
  MonetSchedule current_;
  std::vector<MonetRating> ratings_;
  std::optional<MonetSchedule> best_;
  std::vector<std::vector<std::uint32_t>> neighbours_;
  std::vector<Ticks> least_after_;  // what the stages from here on cost at least
};

}  // namespace regen::published
