// The job table: the jobs that have memory on the devices, in a small file beside the socket. A
// daemon that starts after a crash reserves the bytes of jobs that have not come back yet, until
// they do or their process ends, and applies what an operator has changed about them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

// When the process started, in ticks since the machine did. It distinguishes a process from a later
// one with the same number; 0 when there is no such process.
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

// Replaces the file in one step: a reader sees the whole old file or the whole new one. A full disk
// is no error; the old file then stays.
void write_job_table(const std::string& path, const std::vector<JobTableEntry>& entries);

// The entries of processes that still live. None if the file is missing or not a job table.
std::vector<JobTableEntry> read_job_table(const std::string& path);

}  // namespace regen::share
