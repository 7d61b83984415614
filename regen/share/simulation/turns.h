// Which job uses a modelled device: the daemon's own queue (device_queue.h), or a queue by rank for
// the policies that the daemon does not have. Calls report what jobs do; orders are the result.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "regen/share/scheduler/device_queue.h"
#include "regen/share/simulation/trace.h"

namespace regen::share {

enum class Policy : std::uint8_t {
  kPriority,  // the daemon's: strict priorities, weights inside a level
  kFair,      // weights alone
  kDeadline,  // earliest deadline first
  kShortest,  // shortest remaining time first
  kFcfs,      // a device for each job until it is done, in the order of arrival
};
inline constexpr std::size_t kPolicies = 5;

std::string_view to_string(Policy policy);

class Turns {
 public:
  virtual ~Turns() = default;

  virtual void add(JobId id, const TraceJob& job, Nanoseconds now) = 0;
  virtual void remove(JobId id, Nanoseconds now) = 0;
  // `rank` is for the queues by rank: the least goes first.
  virtual void want(JobId id, Nanoseconds rank, Nanoseconds now) = 0;
  virtual void rest(JobId id, Nanoseconds now) = 0;
  virtual void yield(JobId id, Nanoseconds now) = 0;
  virtual void set_rank(JobId id, Nanoseconds rank, Nanoseconds now) = 0;
  virtual void advance(Nanoseconds now) = 0;
  virtual std::vector<Order> take_orders() = 0;
  virtual std::optional<Nanoseconds> next_event() const = 0;
};

// `turn` is that of the daemon's queue.
std::unique_ptr<Turns> make_turns(Policy policy, Nanoseconds turn);

}  // namespace regen::share
