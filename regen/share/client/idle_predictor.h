// How soon a job usually begins its next piece of work, and so how long its device is kept for it
// while a job of no higher rank waits. Steps of a training follow each other within the time that
// the host needs between two of them, which grows with the number of parameters; to give the device
// away in that time costs more (a quantum of somebody else's, two switches) than it brings. But the
// device must not idle for long beside work that waits: at most for a tenth of what the job works.
#pragma once

#include <algorithm>

#include "regen/share/protocol/job.h"

namespace regen::share {

// The longest rest of a job that comes back soon: some work may still be on the device when it
// begins.
inline constexpr Nanoseconds kSoon = 4'000'000;
// The least that such a job is given, once its device has finished.
inline constexpr Nanoseconds kMoment = 1'000'000;

class IdlePredictor {
 public:
  // A piece of work has ended that took so long, without the time it gave way.
  void worked(Nanoseconds work) { work_ = work; }

  // A rest has ended by a new piece of work.
  void rested(Nanoseconds rest) {
    came_back_ = rest <= kSoon;
    if (!came_back_) return;
    usual_ = usual_ == 0 ? rest : usual_ + (rest - usual_) / 8;
  }

  // From the moment in which the device has finished. None for a job that stayed away last time.
  Nanoseconds patience() const {
    if (!came_back_) return 0;
    return std::clamp(2 * usual_, kMoment, std::clamp(work_ / 10, kMoment, kSoon));
  }

 private:
  bool came_back_ = false;
  Nanoseconds usual_ = 0;
  Nanoseconds work_ = 0;
};

}  // namespace regen::share
