// The job table: the jobs that have memory on the devices, in a small file beside the socket. A
// daemon that starts after a crash reserves the bytes of jobs that have not come back yet, until
// they do or their process ends, and applies what an operator has changed about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/share/protocol/job.h"
#include "regen/share/protocol/peer.h"

namespace regen::share {

struct JobTableEntry {
  std::string name;
  std::string identity;
  std::string device;
  std::int64_t process = 0;  // 0: of a container that the daemon does not see into
  std::uint64_t process_start = 0;
  std::uint64_t process_namespace = 0;  // in which the number counts
  std::int64_t user = kUnknownUser;
  std::int64_t use_file = 0;  // of the lock that it holds while it lives; 0: none
  Bytes bytes = 0;            // what its plan takes
  JobChange changed = {};     // by an operator, since it registered

  bool operator==(const JobTableEntry&) const = default;
};

// Replaces the file in one step: a reader sees the whole old file or the whole new one. After an error
// the old file stays.
Status write_job_table(const std::string& path, const std::vector<JobTableEntry>& entries);

// Whether the process still lives, as far as its number says; nothing when that means nothing here.
std::optional<bool> process_lives(const JobTableEntry& entry);

// The entries of processes that are not known to have ended. None if the file is missing or not a job table; an error if it is there and
// cannot be read: the bytes of its jobs would be given to others.
Result<std::vector<JobTableEntry>> read_job_table(const std::string& path);

}  // namespace regen::share
