// The best that one stage of MONeT's model can do once it is fixed what is stored before and
// after it. Everything else then follows: what must be recomputed, and for each op separately
// whether it runs in place and by which algorithm; the implementation of the backward node is
// tried out.
//
// One restriction: a tensor that is stored before the stage is not recomputed in it, except for
// its backward node when it is not stored after it, or for a by-product.
#pragma once

#include "regen/published/monet/monet_model.h"
#include "regen/published/monet/monet_storage.h"

namespace regen::published {

struct MonetRating {
  Ticks ticks = 0;
  Kib excess = 0;         // over the budget, summed over the memory rows
  std::uint32_t way = 0;  // position among the stage's implementations
  double value(double price) const {
    return static_cast<double>(ticks) + price * static_cast<double>(excess);
  }
};

// The decisions behind a rating.
struct MonetDecisions {
  struct Conv {
    std::uint32_t node = 0;
    std::uint32_t algorithm = 0;  // its number in the instance
  };
  std::vector<std::uint32_t> made;  // ascending
  std::vector<std::uint32_t> in_place;
  std::vector<Conv> convs;               // forward
  std::uint32_t implementation = 0;      // its number in the instance
  std::uint32_t backward_algorithm = 0;  // of a convolution's backward node
};

// Not for several threads at once: it keeps scratch space.
class MonetStageRater {
 public:
  explicit MonetStageRater(const MonetModel& model);

  // `price` is in ticks for each KiB over the budget. Rows have the bits of MonetStorage.
  MonetRating rate(std::size_t t, MonetRow before, MonetRow after, double price) {
    return rate(t, before, ram(before), after, price);
  }
  // The same for callers that know ram(before) already.
  MonetRating rate(std::size_t t, MonetRow before, Kib before_ram, MonetRow after, double price);
  Kib ram(MonetRow row) const;
  MonetDecisions decide(std::size_t t, MonetRow before, MonetRow after, double price);

 private:
  struct Stage;
  MonetRating rate_way(std::size_t t, std::size_t way, MonetRow before, Kib before_ram,
                       MonetRow after, double price, MonetDecisions* decisions);
  void find_made(std::size_t t, MonetRow args, MonetRow before, MonetRow after);
  void add_overrun(Kib total, MonetRating& rating) const {
    if (total > model_.budget) rating.excess += total - model_.budget;
  }
  const MonetAlgorithm& fitting(const std::vector<MonetAlgorithm>& algorithms, Kib base) const;
  void rate_forward(std::size_t t, std::uint32_t node, Kib base, MonetRating& rating,
                    MonetDecisions* decisions);
  void rate_overwriting(std::size_t t, MonetRow args, MonetRow after, double price,
                        MonetRating& rating, MonetDecisions* decisions);

  const MonetModel& model_;
  std::size_t words_;
  std::vector<std::uint64_t> mandatory_;                       // what the forward pass makes
  std::vector<std::vector<std::vector<std::uint64_t>>> args_;  // bits, by stage and implementation
  std::vector<std::uint64_t> made_;
  std::vector<Kib> base_;  // of made nodes: the row's bytes without workspace
};

}  // namespace regen::published
