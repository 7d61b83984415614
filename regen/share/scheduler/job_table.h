// Who has memory on the devices, in a small file beside the socket: a daemon that starts after a
// crash keeps the bytes of those who have not come back yet, until they do or their process ends,
// and what an operator has changed about them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

// When the process started, in ticks since the machine did, so that a number that was given again
// is told from the process it meant; 0 when there is no such process.
std::uint64_t process_start(std::int64_t process);

struct JobTableEntry {
  std::string name;
  std::string identity;
  std::string device;
  std::int64_t process = 0;
  std::uint64_t process_start = 0;
  Bytes bytes = 0;         // what its plan takes
  JobChange changed = {};  // by an operator, since it registered

  bool operator==(const JobTableEntry&) const = default;
};

// Replaces the file in one step: whoever reads it sees the old one or the new one, whole. That a
// full disk keeps the old one is not worth stopping for.
void write_job_table(const std::string& path, const std::vector<JobTableEntry>& entries);

// Those of the file whose process still lives. A file that is missing or not ours says nothing.
std::vector<JobTableEntry> read_job_table(const std::string& path);

}  // namespace regen::share
