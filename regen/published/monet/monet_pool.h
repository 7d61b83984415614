// Schedules of MONeT's model from many short annealing runs, and what becomes of them when each
// two are mixed. The runs end in different valleys, and longer ones do not help: what is good in
// each is brought together by deciding anew, exactly, where two of them differ.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "regen/base/limit.h"
#include "regen/published/monet/monet_neighbourhoods.h"
#include "regen/published/monet/monet_relaxation.h"
#include "regen/published/monet/monet_search.h"

namespace regen::published {

class MonetPool {
 public:
  MonetPool(const MonetModel& model, std::uint64_t seed);

  // Up to so many annealing runs, as far as the limits leave room: a run that is cut short ends hot
  // and is worth nothing.
  void anneal(int runs, Effort& effort);
  // Exact neighbourhoods around one schedule, which may be over the budget.
  void polish(const std::optional<MonetStorage>& storage, std::int64_t work, Effort& effort);
  // Mixes up to so many pairs, best and random ones in turn, until the effort is spent or each pair
  // was tried. The relaxation must have all memory rows.
  void mix(const MonetRelaxation& relaxation, int pairs, Effort& effort);

  void take(const std::optional<MonetSchedule>& schedule);
  void take_all(const MonetPool& other);
  // The cheapest within the budget.
  const std::optional<MonetSchedule>& best() const { return best_; }

 private:
  struct Member {
    MonetSchedule schedule;
    std::uint64_t number = 0;  // another one whenever the schedule changes
  };
  void anneal_once(Effort& effort);
  std::optional<std::pair<std::size_t, std::size_t>> draw_pair();
  bool mix_pair(std::size_t first, std::size_t second, MonetNeighbourhoods& neighbourhoods,
                Effort& effort);
  void drop_copies();

  const MonetModel& model_;
  Random random_;
  std::uint64_t seed_;
  std::uint64_t rounds_ = 0;
  std::uint64_t numbers_ = 0;
  std::int64_t steps_ = 0;
  bool has_by_products_ = false;
  std::vector<Member> members_;  // the cheapest first
  std::set<std::pair<std::uint64_t, std::uint64_t>> tried_;
  std::optional<MonetSchedule> best_;
};

}  // namespace regen::published
