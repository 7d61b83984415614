#include "regen/published/monet/monet_pool.h"

#include <algorithm>
#include <utility>

#include "regen/published/monet/monet_annealing.h"

namespace regen::published {
namespace {

// Steps of one annealing run times stages times nodes.
constexpr std::int64_t kAnnealingWork = 1'200'000'000;
constexpr std::int64_t kLeastSteps = 1'000;
constexpr std::int64_t kMostSteps = 500'000;
constexpr double kRoom = 0.8;  // of what is left, for the next run and what follows it
// A shorter run than this fraction of a whole one is not worth it.
constexpr double kShortest = 0.2;
constexpr std::int64_t kPolishingWork = 500'000;
constexpr std::size_t kMostMembers = 24;

}  // namespace

MonetPool::MonetPool(const MonetModel& model, std::uint64_t seed)
    : model_(model), random_(seed), seed_(seed) {
  const auto size = static_cast<std::int64_t>(model.num_nodes() * model.num_stages());
  steps_ = std::clamp<std::int64_t>(kAnnealingWork / std::max<std::int64_t>(size, 1), kLeastSteps,
                                    kMostSteps);
  has_by_products_ = std::ranges::any_of(
      model.nodes, [](const MonetForward& node) { return node.parent.has_value(); });
}

// Most runs leave by-products aside, which are seldom worth their trouble: without them there is
// much less to decide. Most are strict, since only the best of them count.
void MonetPool::anneal_once(Effort& effort) {
  const bool by_products = !has_by_products_ || rounds_ % 3 == 0;
  const MonetCooling& cooling = rounds_ % 4 == 3 ? kTolerantCooling : kStrictCooling;
  MonetAnnealing annealing(model_, seed_ + rounds_++, by_products);
  annealing.run(steps_, cooling, effort);
  polish(annealing.best() ? annealing.best()->storage : annealing.last(), kPolishingWork, effort);
}

void MonetPool::anneal(int runs, Effort& effort) {
  const std::int64_t whole = steps_;
  for (int run = 0; run < runs && !effort.exhausted(); ++run) {
    const double seconds = effort.seconds();
    const std::int64_t work = effort.work();
    anneal_once(effort);
    const double seconds_each = (effort.seconds() - seconds) / static_cast<double>(steps_);
    const auto work_each = static_cast<double>(effort.work() - work) / static_cast<double>(steps_);
    const double room = kRoom * std::min(effort.seconds_left() / seconds_each,
                                         static_cast<double>(effort.work_left()) / work_each);
    if (room < kShortest * static_cast<double>(whole)) break;
    if (room < static_cast<double>(whole)) steps_ = static_cast<std::int64_t>(room);
  }
  steps_ = whole;
}

void MonetPool::polish(const std::optional<MonetStorage>& storage, std::int64_t work,
                       Effort& effort) {
  MonetSearch search(model_, seed_ + rounds_);
  if (storage) search.offer(*storage);
  const auto given = search.best();
  Effort some(Limits{.seconds = effort.seconds_left(),
                     .work = std::min(work, effort.work_left()),
                     .interrupt = effort.limits().interrupt,
                     .enough = effort.limits().enough});
  search.run(some);
  effort.add(some.work());
  take(search.best() ? search.best() : given);
}

void MonetPool::take(const std::optional<MonetSchedule>& schedule) {
  if (!schedule) return;
  if (!best_ || schedule->ticks < best_->ticks) best_ = schedule;
  members_.push_back({*schedule, numbers_++});
  drop_copies();
}

void MonetPool::take_all(const MonetPool& other) {
  for (const Member& member : other.members_) take(member.schedule);
}

void MonetPool::drop_copies() {
  std::ranges::stable_sort(members_, {},
                           [](const Member& member) { return member.schedule.ticks; });
  const auto same = [](const Member& a, const Member& b) {
    return a.schedule.storage == b.schedule.storage;
  };
  members_.erase(std::unique(members_.begin(), members_.end(), same), members_.end());
  while (members_.size() > kMostMembers) members_.pop_back();
}

// The best and any other, or any two; absent if all pairs were tried.
std::optional<std::pair<std::size_t, std::size_t>> MonetPool::draw_pair() {
  std::vector<std::pair<std::size_t, std::size_t>> open, with_best;
  for (std::size_t a = 0; a < members_.size(); ++a) {
    for (std::size_t b = a + 1; b < members_.size(); ++b) {
      if (tried_.contains({members_[a].number, members_[b].number})) continue;
      open.emplace_back(a, b);
      if (a == 0) with_best.emplace_back(a, b);
    }
  }
  if (open.empty()) return std::nullopt;
  const auto& from = !with_best.empty() && random_.chance(0.5) ? with_best : open;
  return from[static_cast<std::size_t>(
      random_.between(0, static_cast<std::int64_t>(from.size()) - 1))];
}

bool MonetPool::mix_pair(std::size_t first, std::size_t second, MonetNeighbourhoods& neighbourhoods,
                         Effort& effort) {
  tried_.insert({members_[first].number, members_[second].number});
  MonetSchedule mixed = members_[first].schedule;
  if (!neighbourhoods.mix(mixed, members_[second].schedule.storage, effort)) return false;
  members_[first] = {std::move(mixed), numbers_++};
  if (members_[first].schedule.ticks < best_->ticks) best_ = members_[first].schedule;
  drop_copies();
  return true;
}

void MonetPool::mix(const MonetRelaxation& relaxation, int pairs, Effort& effort) {
  if (members_.empty()) return;
  MonetNeighbourhoods neighbourhoods(model_, relaxation);
  for (int tries = 0; tries < pairs && !effort.exhausted(); ++tries) {
    const auto pair = draw_pair();
    if (!pair) break;
    mix_pair(pair->first, pair->second, neighbourhoods, effort);
  }
}

}  // namespace regen::published
