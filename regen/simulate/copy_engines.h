// Two first-in-first-out copy queues that share a link. Time only moves forward: a copy joins at
// the caller's present, and the past is settled as far as a caller asks.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "regen/base/units.h"
#include "regen/cost/device.h"

namespace regen {

enum class Direction : std::uint8_t { kToHost, kToDevice };

class CopyEngines {
 public:
  using Ticket = std::int32_t;

  explicit CopyEngines(const Link& link);

  // Adds a copy at time `now`, which must not be before the last one given.
  Ticket join(Direction direction, Bytes bytes, double now);

  // When the copy ends; settles the queues up to that moment.
  double finish(Ticket ticket);

  // When everything has ended, 0 without copies.
  double drain();

  // Meaningful once the copy has ended.
  double start(Ticket ticket) const { return copies_[ticket].start; }
  double end(Ticket ticket) const { return copies_[ticket].end; }

 private:
  struct Copy {
    double remaining;  // bytes
    double start = -1;
    double end = -1;
  };
  struct Queue {
    std::vector<Ticket> tickets;
    std::size_t head = 0;
    double alone_rate = 0;
    double shared_rate = 0;
    bool busy() const { return head < tickets.size(); }
  };

  void advance(double until);
  // Moves both queues to the next end of a copy, or to `until` if that comes first.
  void advance_once(double until);

  std::array<Queue, 2> queues_;
  std::vector<Copy> copies_;
  double now_ = 0;
  double last_end_ = 0;
};

}  // namespace regen
