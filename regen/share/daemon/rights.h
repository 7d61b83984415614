// What each user may ask of the daemon. The user is the one that the kernel reports for the connection. Administrators (the daemon's own
// user and root, unless a policy file names others) are not limited, and may change every job. Others may change their own jobs, within
// their limits.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "regen/base/result.h"
#include "regen/share/protocol/job.h"
#include "regen/share/protocol/peer.h"

namespace regen::share {

// Of one user. The numbers without a policy file are those for users other than the daemon's own.
struct UserLimits {
  std::int64_t priority = 0;  // at most
  double weight = 1;          // at most
  Bytes memory = kMaxBytes;   // of all jobs of the user on one device together
  std::int64_t jobs = 64;     // of the user
  bool deadlines = false;     // whether jobs may have one: it precedes others of its priority

  bool operator==(const UserLimits&) const = default;
};

// What a user's other jobs have already.
struct UserHolds {
  Bytes memory = 0;  // asked for, on the device in question
  std::int64_t jobs = 0;
};

class Rights {
 public:
  // Without a file: administrators are root and the user of this process.
  Rights();
  // A JSON file with any of `administrators`, `default`, `users`, `groups` (docs/reference/formats.md).
  static Result<Rights> read(const std::string& path);
  static Result<Rights> parse(std::string_view text, const std::string& name);

  bool is_administrator(const Peer& peer) const;
  // Those of the user, else the most generous of its groups' in each respect, else the default.
  UserLimits limits_of(const Peer& peer) const;
  // Whether the user may have a job with these numbers beside the others.
  Status allows(const Peer& peer, const JobSpec& spec, const UserHolds& others) const;
  // Whether the user may change a job of `owner`.
  Status may_change(const Peer& peer, const std::string& job, std::int64_t owner) const;

 private:
  std::set<std::int64_t> administrators_;
  UserLimits default_;
  std::map<std::int64_t, UserLimits> users_;
  std::map<std::int64_t, UserLimits> groups_;
};

}  // namespace regen::share
