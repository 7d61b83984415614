#include "tests/share/simulation/naive_simulator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace regen::share {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

struct Entry {
  std::int64_t left = 0;
  int device = -1;
  std::int64_t placed = 0;  // order of admission
  double served = 0;        // over weight
  std::int64_t queued = 0;  // number in the order of waiting
  std::optional<std::int64_t> end = {};
};

struct Card {
  int holder = -1;
  std::int64_t turn_end = 0;
};

class Naive {
 public:
  Naive(const Trace& trace, const SimulationOptions& options)
      : trace_(trace),
        options_(options),
        turn_(options.turn / kSecond),
        jobs_(trace.jobs.size()),
        cards_(static_cast<std::size_t>(options.devices)),
        departed_(cards_.size()) {}

  std::vector<std::int64_t> run() {
    for (now_ = 0; !all_done(); ++now_) {
      // At one moment, works and turns end before jobs arrive.
      for (std::size_t d = 0; d < cards_.size(); ++d) {
        finish(d);
        choose(d);
      }
      for (std::size_t j = 0; j < jobs_.size(); ++j) {
        if (arrival(j) == now_ && !place(j)) waiting_.push_back(j);
      }
      for (std::size_t d = 0; d < cards_.size(); ++d) choose(d);
      for (Card& card : cards_) {
        if (card.holder < 0) continue;
        Entry& job = jobs_[card.holder];
        --job.left;
        job.served += 1 / trace_.jobs[card.holder].weight;
      }
    }
    std::vector<std::int64_t> ends;
    for (const Entry& job : jobs_) ends.push_back(*job.end);
    return ends;
  }

 private:
  std::int64_t arrival(std::size_t j) const { return trace_.jobs[j].arrival / kSecond; }
  Bytes bytes(std::size_t j) const { return trace_.jobs[j].points[0].bytes; }
  bool daemon() const {
    return options_.policy == Policy::kPriority || options_.policy == Policy::kFair;
  }
  std::int64_t level(std::size_t j) const {
    return options_.policy == Policy::kPriority ? trace_.jobs[j].priority : 0;
  }
  bool all_done() const {
    return std::all_of(jobs_.begin(), jobs_.end(), [](const Entry& job) { return job.end; });
  }
  std::vector<std::size_t> on(std::size_t d) const {
    std::vector<std::size_t> list;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (jobs_[j].device == static_cast<int>(d)) list.push_back(j);
    }
    return list;
  }

  bool room(std::size_t d, std::size_t j) const {
    Bytes used = bytes(j);
    for (const std::size_t other : on(d)) used += bytes(other);
    return used <= options_.device_bytes && (options_.policy != Policy::kFcfs || on(d).empty());
  }
  void admit(std::size_t d, std::size_t j) {
    double least = departed_[d].contains(level(j)) ? departed_[d][level(j)] : 0;
    bool alone = true;
    for (const std::size_t other : on(d)) {
      if (level(other) != level(j)) continue;
      least = alone ? jobs_[other].served : std::min(least, jobs_[other].served);
      alone = false;
    }
    jobs_[j].served = least;
    jobs_[j].left = trace_.jobs[j].steps * trace_.jobs[j].points[0].time / kSecond;
    jobs_[j].device = static_cast<int>(d);
    jobs_[j].placed = jobs_[j].queued = ticket_++;
    choose(d);
  }
  bool place(std::size_t j) {
    std::optional<std::size_t> best;
    std::int64_t best_load = 0;
    for (std::size_t d = 0; d < cards_.size(); ++d) {
      if (!room(d, j)) continue;
      std::int64_t load = 0;
      for (const std::size_t other : on(d)) load += jobs_[other].left;
      if (!best || load < best_load) std::tie(best, best_load) = std::tuple(d, load);
    }
    if (best) admit(*best, j);
    return best.has_value();
  }

  void finish(std::size_t d) {
    Card& card = cards_[d];
    if (card.holder < 0 || jobs_[card.holder].left > 0) return;
    const auto j = static_cast<std::size_t>(card.holder);
    jobs_[j].end = now_;
    jobs_[j].device = -1;
    double& floor = departed_[d][level(j)];
    floor = std::max(floor, jobs_[j].served);
    const auto others = on(d);
    if (std::none_of(others.begin(), others.end(), [&](auto o) { return level(o) == level(j); })) {
      departed_[d].erase(level(j));
    }
    card.holder = -1;
    choose(d);
    auto order = waiting_;
    std::stable_sort(order.begin(), order.end(),
                     [this](auto a, auto b) { return urgency(a) < urgency(b); });
    for (const std::size_t next : order) {
      if (!room(d, next)) continue;
      std::erase(waiting_, next);
      admit(d, next);
    }
  }
  std::int64_t urgency(std::size_t j) const {
    const TraceJob& job = trace_.jobs[j];
    if (options_.policy == Policy::kPriority) return -job.priority;
    if (options_.policy == Policy::kShortest) return job.steps * job.points[0].time;
    if (options_.policy == Policy::kDeadline) return due(j);
    return 0;
  }
  std::int64_t due(std::size_t j) const {
    const TraceJob& job = trace_.jobs[j];
    return job.deadline ? job.arrival + *job.deadline : INT64_MAX;
  }

  // Whether a goes before b when neither holds.
  bool before(std::size_t a, std::size_t b) const {
    if (daemon()) {
      return std::tuple(-level(a), jobs_[a].served, jobs_[a].queued) <
             std::tuple(-level(b), jobs_[b].served, jobs_[b].queued);
    }
    return std::tuple(key(a), jobs_[a].placed) < std::tuple(key(b), jobs_[b].placed);
  }
  std::int64_t key(std::size_t j) const {
    if (options_.policy == Policy::kShortest) return jobs_[j].left;
    return options_.policy == Policy::kDeadline ? due(j) : 0;
  }
  bool displaces(const Card& card, std::size_t rival) const {
    const auto holder = static_cast<std::size_t>(card.holder);
    if (!daemon()) return key(rival) < key(holder);
    if (level(rival) != level(holder)) return level(rival) > level(holder);
    return now_ >= card.turn_end && before(rival, holder);
  }

  // Until no job gives way any more.
  void choose(std::size_t d) {
    Card& card = cards_[d];
    while (true) {
      std::optional<std::size_t> best;
      for (const std::size_t j : on(d)) {
        if (static_cast<int>(j) == card.holder || jobs_[j].left == 0) continue;
        if (!best || before(j, *best)) best = j;
      }
      if (card.holder >= 0 && (!best || !displaces(card, *best))) {
        if (best && now_ >= card.turn_end) card.turn_end = now_ + turn_;
        return;
      }
      if (!best) return;
      if (card.holder >= 0) jobs_[card.holder].queued = ticket_++;
      card.holder = static_cast<int>(*best);
      card.turn_end = now_ + turn_;
    }
  }

  const Trace& trace_;
  const SimulationOptions& options_;
  std::int64_t turn_;
  std::int64_t now_ = 0;
  std::int64_t ticket_ = 0;
  std::vector<Entry> jobs_;
  std::vector<Card> cards_;
  std::vector<std::map<std::int64_t, double>> departed_;  // what the last of a level was served
  std::vector<std::size_t> waiting_;
};

}  // namespace

std::vector<std::int64_t> naive_ends(const Trace& trace, const SimulationOptions& options) {
  return Naive(trace, options).run();
}

}  // namespace regen::share
