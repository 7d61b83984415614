// Which job may use one device, and which must give way: a state machine without input, output or
// clock.
//
//          want              chosen
//   idle ────────► waiting ────────► holding
//    ▲               ▲  │               │
//    │               └──┼── yield ──────┤
//    └──── rest ────────┴───────────────┘
//
// Between two calls at most one job holds the device. No job waits while the device is free, unless
// the memory of the first one is not on the device (blocked()) or bars it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "regen/share/protocol/order.h"
#include "regen/share/report/recent_times.h"
#include "regen/share/scheduler/device_memory.h"

namespace regen::share {

enum class JobState : std::uint8_t { kIdle, kWaiting, kHolding };

// What happened to a job so far; the times include what is going on now.
struct JobCounts {
  Nanoseconds used = 0;          // held the device
  Nanoseconds waited = 0;        // in all
  Nanoseconds longest_wait = 0;  // for one grant
  std::int64_t grants = 0;
  std::int64_t preemptions = 0;       // gave way because it was asked to
  std::int64_t missed_deadlines = 0;  // grants that came too late
};

class DeviceQueue {
 public:
  // How a job competes.
  struct Claim {
    std::int64_t priority = 0;
    double weight = 1;
    std::optional<Nanoseconds> deadline = {};  // from want() to the grant
  };

  // A holder keeps the device for at least `turn` before a job of the same rank may have it, and
  // hangs when it does not give way for `patience`.
  explicit DeviceQueue(Nanoseconds turn, Nanoseconds patience = kNever)
      : turn_(turn), patience_(patience) {}

  // Jobs start idle. Ids must be new, and known in all other calls.
  void add(JobId job, const Claim& claim, Nanoseconds now);
  void remove(JobId job, Nanoseconds now);
  void want(JobId job, Nanoseconds now);   // nothing to do unless idle
  void yield(JobId job, Nanoseconds now);  // nothing to do unless holding
  void rest(JobId job, Nanoseconds now);   // nothing to do when idle
  void advance(Nanoseconds now);           // only time passed

  void set_claim(JobId job, std::int64_t priority, double weight, Nanoseconds now);
  // Jobs start ready. A holder that is barred is asked to give way.
  void set_access(JobId job, Access access, Nanoseconds now);
  // The least turn before a job of the same rank may have the device, where a switch is expensive.
  void set_least_turn(Nanoseconds turn) { least_turn_ = turn; }
  // Grants stop (and start again); what is held stays held.
  void set_closed(bool closed, Nanoseconds now);

  // The orders since the last call, in order.
  std::vector<Order> take_orders();
  // When advance() must be called if nothing else happens; nothing while no job waits.
  std::optional<Nanoseconds> next_event() const;

  std::optional<JobId> holder() const { return holder_; }
  // The job that would hold the device if its memory were on the device.
  std::optional<JobId> blocked() const { return blocked_; }
  bool asked_to_give_way() const { return asked_at_.has_value(); }
  // For how long the holder has been asked to give way; 0 when it is not.
  Nanoseconds asked_for(Nanoseconds now) const;
  std::size_t waiting() const;
  // Whether no other job, whatever it does now, could ask this one to give way before its turn
  // ends.
  bool outranks_all(JobId job) const;
  JobState state(JobId job) const;
  JobCounts counts(JobId job, Nanoseconds now) const;
  // How long its last grants were waited for.
  std::optional<Percentiles> waits(JobId job, Nanoseconds now) const;
  // The time for which the device was held, by jobs that have left too.
  Nanoseconds busy(Nanoseconds now) const;
  // Grants so far, to jobs that have left too.
  std::int64_t grants() const { return grants_; }

 private:
  struct Job {
    Claim claim;
    JobState state = JobState::kIdle;
    Access access = Access::kReady;
    double served = 0;         // device time over weight: least is next
    Nanoseconds since = 0;     // of the state
    Nanoseconds wanted = 0;    // when it asked; kept while it yields
    std::int64_t arrival = 0;  // its number in the order of waiting
    JobCounts counts;
    RecentTimes waits;  // for a grant
  };

  Nanoseconds at_least_last(Nanoseconds now);
  Nanoseconds due(const Job& job) const;
  double served(const Job& job, Nanoseconds now) const;
  bool urgent(const Job& a, const Job& b) const;
  bool before(const Job& a, const Job& b, Nanoseconds now) const;
  const Job* best_waiting(Nanoseconds now) const;
  double least_served(std::int64_t priority, Nanoseconds now) const;
  void forget_empty_level(std::int64_t level);
  void enter(Job& job, JobState state, Nanoseconds now);
  void release(JobId id, JobState next, Nanoseconds now);
  void settle(Nanoseconds now);
  void grant_best(Nanoseconds now);
  void set_asked(bool asked, Nanoseconds now);
  void review_holder(Nanoseconds now);
  bool must_give_way(const Job& holder, const Job& rival, Nanoseconds now) const;

  Nanoseconds turn_;
  Nanoseconds least_turn_ = 0;
  Nanoseconds patience_;
  Nanoseconds last_ = 0;
  bool closed_ = false;
  std::map<JobId, Job> jobs_;
  std::optional<JobId> holder_;
  Nanoseconds turn_end_ = 0;
  std::optional<JobId> blocked_;
  std::optional<Nanoseconds> asked_at_;
  Nanoseconds hung_at_ = kNever;  // when patience ends next
  Nanoseconds busy_ = 0;          // without the present holder
  std::int64_t arrivals_ = 0;
  std::int64_t grants_ = 0;
  std::map<std::int64_t, double> floor_;  // of each level: what the last to leave was served
  std::vector<Order> orders_;
};

}  // namespace regen::share
