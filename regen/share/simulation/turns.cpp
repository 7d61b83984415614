#include "regen/share/simulation/turns.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

namespace regen::share {
namespace {

class DaemonTurns : public Turns {
 public:
  DaemonTurns(Nanoseconds turn, bool priorities) : queue_(turn), priorities_(priorities) {}

  void add(JobId id, const TraceJob& job, Nanoseconds now) override {
    DeviceQueue::Claim claim{.weight = job.weight};
    if (priorities_) claim.priority = job.priority;
    // The daemon's deadlines are those of requests.
    if (priorities_ && job.kind == JobKind::kInference) claim.deadline = job.deadline;
    queue_.add(id, claim, now);
  }
  void remove(JobId id, Nanoseconds now) override { queue_.remove(id, now); }
  void want(JobId id, Nanoseconds /*rank*/, Nanoseconds now) override { queue_.want(id, now); }
  void rest(JobId id, Nanoseconds now) override { queue_.rest(id, now); }
  void yield(JobId id, Nanoseconds now) override { queue_.yield(id, now); }
  void set_rank(JobId /*id*/, Nanoseconds /*rank*/, Nanoseconds /*now*/) override {}
  void advance(Nanoseconds now) override { queue_.advance(now); }
  std::vector<Order> take_orders() override { return queue_.take_orders(); }
  std::optional<Nanoseconds> next_event() const override { return queue_.next_event(); }

 private:
  DeviceQueue queue_;
  bool priorities_;
};

// The job of the least rank holds the device; of equal ranks, the one that holds it already, then
// the one that was admitted first.
class RankTurns : public Turns {
 public:
  void add(JobId id, const TraceJob& /*job*/, Nanoseconds /*now*/) override {
    places_.emplace(id, places_made_++);
  }
  void remove(JobId id, Nanoseconds now) override {
    rest(id, now);
    places_.erase(id);
    std::erase_if(orders_, [id](const Order& order) { return order.job == id; });
  }
  void want(JobId id, Nanoseconds rank, Nanoseconds /*now*/) override {
    ranks_[id] = rank;
    settle();
  }
  void rest(JobId id, Nanoseconds /*now*/) override {
    ranks_.erase(id);
    if (holder_ == id) drop_holder();
    settle();
  }
  void yield(JobId id, Nanoseconds /*now*/) override {
    if (holder_ == id) drop_holder();
    settle();
  }
  void set_rank(JobId id, Nanoseconds rank, Nanoseconds /*now*/) override {
    if (!ranks_.contains(id)) return;
    ranks_[id] = rank;
    settle();
  }
  void advance(Nanoseconds /*now*/) override {}
  std::vector<Order> take_orders() override { return std::exchange(orders_, {}); }
  std::optional<Nanoseconds> next_event() const override { return std::nullopt; }

 private:
  void drop_holder() {
    holder_.reset();
    asked_ = false;
  }

  void settle() {
    const auto better = [this](const auto& a, const auto& b) {
      return std::tuple(a.second, a.first != holder_, places_.at(a.first)) <
             std::tuple(b.second, b.first != holder_, places_.at(b.first));
    };
    const auto best = std::min_element(ranks_.begin(), ranks_.end(), better);
    if (best == ranks_.end()) return;
    if (!holder_) {
      holder_ = best->first;
      orders_.push_back({*holder_, Order::Kind::kGrant});
    }
    const bool ask = best->first != *holder_;
    if (ask == asked_) return;
    asked_ = ask;
    orders_.push_back({*holder_, ask ? Order::Kind::kGiveWay : Order::Kind::kGoOn});
  }

  std::map<JobId, Nanoseconds> ranks_;  // of jobs that wait for the device
  std::map<JobId, std::int64_t> places_;
  std::int64_t places_made_ = 0;
  std::optional<JobId> holder_;
  bool asked_ = false;
  std::vector<Order> orders_;
};

constexpr std::array<std::string_view, kPolicies> kNames{"priority", "fair", "deadline", "shortest",
                                                         "fcfs"};

}  // namespace

std::string_view to_string(Policy policy) {
  return kNames[static_cast<std::size_t>(policy)];
}

std::unique_ptr<Turns> make_turns(Policy policy, Nanoseconds turn) {
  if (policy == Policy::kPriority) return std::make_unique<DaemonTurns>(turn, true);
  if (policy == Policy::kFair) return std::make_unique<DaemonTurns>(turn, false);
  return std::make_unique<RankTurns>();
}

}  // namespace regen::share
