// What requests have cost the daemon, so that the questions of one user do not take the time of all turns. A user may spend a fraction
// of the time, and a little ahead; a user that has spent more is not read from until that is paid. Payments are in a line, so that users
// that wait come back one by one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "regen/share/protocol/job.h"

namespace regen::share {

// Time that may be spent: one in `parts` of what passes, and a little ahead.
class Allowance {
 public:
  void spend(Nanoseconds cost, std::int64_t parts, Nanoseconds now) {
    paid_until_ = std::max(paid_until_, now - kAhead) + std::max<Nanoseconds>(0, cost) * parts;
  }
  // How long until all that was spent is paid.
  Nanoseconds debt(Nanoseconds now) const { return std::max<Nanoseconds>(0, paid_until_ - now); }
  // Whether it is as if nothing had ever been spent.
  bool fresh(Nanoseconds now) const { return paid_until_ <= now - kAhead; }

 private:
  static constexpr Nanoseconds kAhead = 20'000'000;

  Nanoseconds paid_until_ = INT64_MIN / 2;
};

// Of each user, for what is not a turn: connections, reports, registrations, changes, errors.
class Expenses {
 public:
  void spend(std::int64_t user, Nanoseconds cost, Nanoseconds now) {
    if (users_.size() >= kMostUsers) forget_fresh(now);
    users_[user].spend(cost, kParts, now);
  }
  Nanoseconds debt(std::int64_t user, Nanoseconds now) const {
    const auto found = users_.find(user);
    return found == users_.end() ? 0 : found->second.debt(now);
  }

 private:
  static constexpr std::int64_t kParts = 4;
  static constexpr std::size_t kMostUsers = 1000;

  void forget_fresh(Nanoseconds now) {
    std::erase_if(users_, [now](const auto& entry) { return entry.second.fresh(now); });
  }

  std::map<std::int64_t, Allowance> users_;
};

}  // namespace regen::share
