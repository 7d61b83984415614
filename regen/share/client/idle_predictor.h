// Predicts how soon a job begins its next piece of work, and so how long its device is kept for it
// while a job of no higher rank waits. Training steps follow each other within the time that the
// host needs between two of them, which grows with the number of parameters. Giving the device away
// in that time costs more (a quantum of another job, two switches) than it gains. But the device
// must not idle for long while work waits: at most for a tenth of the job's work time.
#pragma once

#include <algorithm>

#include "regen/share/protocol/job.h"

namespace regen::share {

// The longest idle time that counts as short. Some work may still be on the device when it begins.
inline constexpr Nanoseconds kMaxShortIdle = 4'000'000;
// The shortest time for which the device is kept after a short idle time, once it has finished.
inline constexpr Nanoseconds kMinKeepTime = 1'000'000;

class IdlePredictor {
 public:
  // A piece of work has ended. `work` leaves out the time for which it gave way.
  void worked(Nanoseconds work) { work_ = work; }

  // An idle time has ended with a new piece of work.
  void rested(Nanoseconds rest) {
    came_back_ = rest <= kMaxShortIdle;
    if (!came_back_) return;
    usual_ = usual_ == 0 ? rest : usual_ + (rest - usual_) / 8;
  }

  // How long to keep the device, from the moment when it has finished; 0 if the last idle time was
  // long.
  Nanoseconds patience() const {
    if (!came_back_) return 0;
    return std::clamp(2 * usual_, kMinKeepTime,
                      std::clamp(work_ / 10, kMinKeepTime, kMaxShortIdle));
  }

 private:
  bool came_back_ = false;
  Nanoseconds usual_ = 0;
  Nanoseconds work_ = 0;
};

}  // namespace regen::share
