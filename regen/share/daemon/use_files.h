// Which jobs use their devices at this moment, according to the kernel. Each job has a file of its own and locks bytes in it
// (client/device_use.h), so that no job can pretend that another one is busy. The files lie in one folder that only the daemon's user can
// enter, and another file there has the job that each device was granted to last: a daemon that starts after a crash looks at those.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

using UseNumber = std::int64_t;  // of a file; 0: none

// One job's file. It goes with this object, unless a later daemon still needs it.
class UseFile {
 public:
  UseFile() = default;
  UseFile(std::string path, Descriptor file, UseNumber number);
  UseFile(UseFile&& other) noexcept;
  UseFile& operator=(UseFile&& other) noexcept;
  ~UseFile();

  UseNumber number() const { return number_; }
  bool valid() const { return file_.valid(); }
  // For the client, to lock; once.
  Descriptor take_share() { return std::move(share_); }
  // Whether the job uses the device, or lives.
  bool uses(std::size_t device) const;
  bool lives() const;
  // It stays when this object goes.
  void keep() { path_.clear(); }

 private:
  bool locked(std::int64_t byte) const;

  friend class UseFiles;

  std::string path_;
  Descriptor file_;
  Descriptor share_;  // of a new file
  UseNumber number_ = 0;
};

class UseFiles {
 public:
  // Makes the folder if it is missing.
  static Result<UseFiles> open(const std::string& folder);

  // A file for a new job; an error when the system has no room for it.
  Result<UseFile> make();
  // That of a job of the former daemon; not valid when there is none.
  Result<UseFile> former(UseNumber number) const;
  // The job that the device was granted to last, by this daemon or the former one.
  Result<UseNumber> last_holder(std::size_t device);
  bool held_last(std::size_t device, UseNumber number) const;
  // An error when it cannot be written down; then it is written by the next call.
  Status set_last_holder(std::size_t device, UseNumber number);
  // What could not be written before.
  Status write_down();
  bool written() const { return unwritten_.empty(); }
  // Those of the former daemon that are not needed any more.
  void remove_all_but(const std::vector<UseNumber>& needed);

 private:
  std::string path_of(UseNumber number) const;

  std::string folder_;
  Descriptor holders_;
  UseNumber next_ = 1;
  std::map<std::size_t, UseNumber> last_;  // as read or granted
  std::set<std::size_t> unwritten_;        // devices of which the file says something else
};

}  // namespace regen::share
