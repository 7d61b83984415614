#include "regen/simulate/copy_engines.h"

#include <algorithm>
#include <limits>

namespace regen {

CopyEngines::CopyEngines(const Link& link) {
  const double sum = link.to_host + link.to_device;
  const double fraction = link.both > 0 && sum > link.both ? link.both / sum : 1.0;
  queues_[0].alone_rate = link.to_host;
  queues_[1].alone_rate = link.to_device;
  for (Queue& queue : queues_) queue.shared_rate = queue.alone_rate * fraction;
}

CopyEngines::Ticket CopyEngines::join(Direction direction, Bytes bytes, double now) {
  advance(now);
  const Ticket ticket = static_cast<Ticket>(copies_.size());
  copies_.push_back({.remaining = static_cast<double>(bytes)});
  queues_[static_cast<std::size_t>(direction)].tickets.push_back(ticket);
  return ticket;
}

double CopyEngines::finish(Ticket ticket) {
  while (copies_[ticket].end < 0) advance_once(std::numeric_limits<double>::infinity());
  return copies_[ticket].end;
}

double CopyEngines::drain() {
  while (queues_[0].busy() || queues_[1].busy()) {
    advance_once(std::numeric_limits<double>::infinity());
  }
  return last_end_;
}

void CopyEngines::advance(double until) {
  while (now_ < until && (queues_[0].busy() || queues_[1].busy())) advance_once(until);
  now_ = std::max(now_, until);
}

void CopyEngines::advance_once(double until) {
  const bool shared = queues_[0].busy() && queues_[1].busy();
  double step = until - now_;
  for (const Queue& queue : queues_) {
    if (!queue.busy()) continue;
    const double rate = shared ? queue.shared_rate : queue.alone_rate;
    step = std::min(step, copies_[queue.tickets[queue.head]].remaining / rate);
  }
  const double next = now_ + step;
  for (Queue& queue : queues_) {
    if (!queue.busy()) continue;
    const double rate = shared ? queue.shared_rate : queue.alone_rate;
    Copy& copy = copies_[queue.tickets[queue.head]];
    if (copy.start < 0) copy.start = now_;
    // The copy that set the length of this step has ended, whatever rounding left behind.
    if (copy.remaining / rate <= step) {
      copy.remaining = 0;
      copy.end = next;
      last_end_ = std::max(last_end_, next);
      ++queue.head;
    } else {
      copy.remaining -= rate * step;
    }
  }
  now_ = next;
}

}  // namespace regen
