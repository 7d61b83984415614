// The bytes of each job on one device, and the orders that change them: a state machine without
// input, output or clock. arrangement.h computes the place of each job; this class moves the jobs
// there and never exceeds the capacity:
//
//   shrinking first   a lower limit is sent at once, and counts once the job confirms it
//   then the others   newcomers and growing jobs get bytes that are free
//
// Between two calls:
//   1. held bytes sum to at most the capacity;
//   2. every job can come back: the parked bytes of all plus the other bytes of any one fit;
//   3. no job gets a limit below its least bytes;
//   4. when all orders are carried out, every newcomer is admitted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "regen/share/protocol/order.h"
#include "regen/share/scheduler/arrangement.h"

namespace regen::share {

// Whether a job's memory allows it to hold the device.
enum class Access : std::uint8_t {
  kReady,   // all its bytes are on the device
  kParked,  // make_ready() first
  kBarred,  // not now: it must be away, or no job can make room for it
};

class DeviceMemory {
 public:
  explicit DeviceMemory(Bytes capacity) : capacity_(capacity) {}

  // The error that request() would give; nothing changes.
  Status check(const Demand& demand) const;
  // A newcomer; an order says when it is admitted. Refused, with the numbers, when the jobs cannot
  // make enough room. `deepest` is how far it can get out of the way.
  Status request(JobId job, const Demand& demand, Depth deepest);
  // A job that is on the device already, with a plan of `full` bytes of which it holds `held`.
  Status readmit(JobId job, const Demand& demand, Depth deepest, Bytes full, Bytes held);
  // What an admitted job needs has changed; an order says when its limit fits that. An error
  // changes nothing.
  Status change(JobId job, const Demand& demand, Depth deepest);
  // Of newcomers too.
  void remove(JobId job);

  // The job uses so many bytes and has seen the limit of this generation.
  void confirm(JobId job, std::uint32_t generation, Bytes used);
  // The answer to an order to make room: what is still on the device. False when that is more than
  // it should be; the job is not asked again until forgive().
  bool made_room(JobId job, Bytes left);
  void forgive(JobId job);
  // The job made room without an order.
  void parked(JobId job, Bytes left);

  // While closed no job grows and none is admitted.
  void set_closed(bool closed);
  // The job that holds the device is not asked to make room.
  void set_holder(std::optional<JobId> holder);
  // Whether all bytes of a job that should hold the device are available now. If not, other jobs
  // are asked for room; call again after they have answered. For jobs with access kParked.
  bool make_ready(JobId job);

  // Gives the orders that are due.
  void settle();
  std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
  bool has_orders() const { return dirty_ || !orders_.empty(); }
  // Jobs with an access() or urgency() that has changed.
  std::vector<JobId> take_changed() { return std::exchange(changed_, {}); }

  Access access(JobId job) const;
  // The priority with which it should compete: that of a newcomer that waits for its bytes, if that
  // is higher than its own.
  std::int64_t urgency(JobId job) const;
  bool admitted(JobId job) const { return jobs_.at(job).admitted; }
  // Whether not all can have all their bytes at once.
  bool in_turns() const { return in_turns_; }

  struct Facts {
    Bytes limit = 0;
    Bytes full = 0;  // of the plan that it may be running
    Bytes held = 0;  // counted as its own; at least what it uses
    Bytes used = 0;  // as last reported
    bool shrinking = false;
    bool away = false;
    bool making_room = false;
  };
  Facts facts(JobId job) const;
  Bytes capacity() const { return capacity_; }
  Bytes held() const { return capacity_ - free(); }

 private:
  struct Job {
    Demand demand;
    Depth deepest = Depth::kPause;
    bool admitted = false;
    Place place;      // where it should be
    ByteLimit limit;  // as last sent
    Bytes full = 0;   // of the plan that it may be running: the limit, or a higher one before
    Bytes held = 0;   // of those, on the device
    Bytes used = 0;
    bool away = false;
    bool update_confirmed = true;
    std::optional<Depth> asked;  // to make room, and has not answered
    bool cannot_move =
        false;           // it moved less than it was asked to, and has not had the device since
    bool stuck = false;  // no job can make room for it now
    Access seen_access = Access::kReady;
    std::int64_t seen_urgency = 0;
  };
  using Entry = std::pair<const JobId, Job>;

  Result<std::map<JobId, Place>> places_with(JobId changed, const Job* job) const;
  void take_places(const std::map<JobId, Place>& places);
  void rearrange();
  Bytes free() const;
  Bytes parked(const Job& job) const;
  bool all_can_return(const Job& instead, Bytes full) const;
  bool anyone_asked() const;
  bool anyone_stuck() const;
  bool secure(Bytes need, const Job& beneficiary);
  void ask(JobId id, Job& job, Depth depth);
  void look_again();
  void announce_limit(JobId id, Job& job, Bytes bytes);
  void come_back();
  void shrink();
  void put_away();
  void admit();
  void grow();
  void announce_depths();
  void note_changes();

  Bytes capacity_;
  bool closed_ = false;
  bool dirty_ = false;
  bool unsettled_ = false;  // some job is not at its place
  bool in_turns_ = false;
  std::optional<JobId> holder_;
  std::map<JobId, Job> jobs_;
  std::vector<Order> orders_;
  std::vector<JobId> changed_;
};

}  // namespace regen::share
