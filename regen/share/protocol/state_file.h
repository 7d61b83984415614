// A file for the state of a job. After a crash, at whatever instruction the job was killed, a
// reader finds the newest image that was written in full.
//
//   0      head      what it is, its version, how much a slot holds
//   4096   slot 0    sequence, step, bytes, checksums; or nothing
//   8192   slot 1    likewise
//   12288  data of slot 0, then data of slot 1
//
// A commit goes to the slot that does not hold the newest image:
//   1. that slot's entry is wiped out          2. the data are written, in chunks
//   3. they are on the disk (fdatasync)        4. the entry is written: the commit has happened
// A kill before 4 leaves the other slot, which was not changed. An entry lies in one block and has
// its own checksum. An image that is larger than a slot goes to a new file beside this one, which
// then takes its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/share/protocol/checksum.h"
#include "regen/share/protocol/file_lock.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

struct StateInfo {
  std::uint64_t sequence = 0;  // counts commits
  std::uint64_t step = 0;      // what the writer calls it
  Bytes bytes = 0;

  bool operator==(const StateInfo&) const = default;
};

class StateFile {
 public:
  enum class Access : std::uint8_t {
    kWrite,  // one process at a time, by a lock beside the file
    kRead,   // any number, also beside a writer
  };
  struct Options {
    Access access = Access::kWrite;
    // Survives a loss of power too, not only the end of the process.
    bool durable = true;
    Bytes chunk = Bytes{8} << 20;
  };
  using Parts = std::span<const std::span<const std::byte>>;

  // A file that is not there yet is made by the first commit; for a reader it is an error. Reads
  // the newest image once, to be sure that it is whole; should it be damaged, the one before
  // counts.
  static Result<StateFile> open(const std::string& path, const Options& options);
  static Result<StateFile> open(const std::string& path) { return open(path, Options()); }

  const std::optional<StateInfo>& newest() const { return newest_; }
  // The parts one after another are the image. When it fails, the newest image is what it was.
  Status commit(std::uint64_t step, Parts parts);
  // Of the newest image.
  Status read(Bytes offset, std::span<std::byte> to) const;

 private:
  struct Entry;

  Status check_head();
  Status find_newest();
  Result<Entry> read_entry(int slot) const;
  Result<bool> is_whole(int slot, const Entry& entry) const;
  Status write_slot(const Descriptor& file, int slot, Entry entry, Parts parts) const;
  Status make_anew(const Entry& entry, Parts parts);
  Bytes data_offset(int slot) const;
  Status sync(const Descriptor& file) const;
  Error failure(const std::string& what) const;

  std::string path_;
  Options options_;
  FileLock lock_;
  Descriptor file_;
  Bytes capacity_ = 0;
  int slot_ = 0;  // of the newest image
  std::optional<StateInfo> newest_;
};

}  // namespace regen::share
