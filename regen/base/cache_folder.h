// A folder of files that make a later start faster, and do nothing else.
//
// Nothing that is wrong with it is an error: the caller goes on as if the file were not there, and
// take_warning() says once what was found first. What is read has been written by this user (or by
// root, for an image) where no other user may write; a file appears whole or not at all; what killed
// processes left behind goes; each kind of file has a bound on its number and bytes.
//
// What a file *says* is for its reader to check: distrust() reports what does not hold.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "regen/base/open_file.h"

namespace regen {

// Files whose names begin with `prefix`; of these the least recently used go first.
struct CacheKind {
  std::string_view what;  // for messages: "the plan is not kept"
  std::string_view prefix;
  std::size_t most_bytes = 0;  // of one file
  std::size_t most_files = 0;
  std::size_t most_total = 0;  // bytes of all files together
};

// Any thread may use it.
class CacheFolder {
 public:
  // Made, for this user alone, when something is written. "": nothing is kept and nothing read.
  explicit CacheFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool keeps() const { return !path_.empty(); }

  // Absent: there is no such file, or it may not be used.
  std::optional<std::string> read(const CacheKind& kind, const std::string& name);
  // `change` gets what the file holds, and returns what it is to hold, or nothing to leave it as it
  // is. One process at a time; where the folder cannot be used, `change` gets nothing and what it
  // returns is dropped.
  using Change = std::function<std::optional<std::string>(const std::optional<std::string>& now)>;
  void update(const CacheKind& kind, const std::string& name, const Change& change);

  void remove(const std::string& name);

  // A file does not hold what it should; `problem` names it.
  void distrust(std::string_view problem);
  // One line, once: the first thing that was found wrong.
  std::optional<std::string> take_warning();

 private:
  OpenFile open(bool create);
  OpenFile open_existing(bool create);
  std::optional<std::string> read_in(const OpenFile& folder, const CacheKind& kind,
                                     const std::string& name);
  void write_in(const OpenFile& folder, const CacheKind& kind, const std::string& name,
                std::string_view content);
  void warn(std::string_view problem, std::string_view instead);
  void warn_not_kept(const CacheKind& kind, std::string_view problem);

  const std::string path_;
  std::mutex mutex_;  // of what follows
  std::optional<std::string> warning_;
  bool warned_ = false;
};

}  // namespace regen
