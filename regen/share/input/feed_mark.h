// Where a shared input stands, in a small file beside its socket, for the next producer. A consumer
// that lost its producer comes back with its position; but it may come after a newcomer that has
// none. If the newcomer's producer began at the beginning, the other would have to wait until the
// newcomer has read as much. So it begins at the mark, as long as a reader of the crashed producer
// lives.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "regen/share/input/feed_queue.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

// For the producer that has the listen socket open. The file is removed with it, unless the
// producer is killed. A full disk is no error.
class FeedMark {
 public:
  FeedMark(const std::string& socket, Position start);
  FeedMark(const FeedMark&) = delete;
  ~FeedMark();

  // From one thread, ...
  void stand_at(Position position) const;
  // ... and these from one thread, which may be another.
  void add_reader(std::int64_t process);
  void remove_reader(std::int64_t process);

  // Where a producer begins that was given no position: the mark of a killed producer if one of its
  // readers still lives, else the beginning.
  static Position after_crash(const std::string& socket);

 private:
  using Reader = std::pair<std::int64_t, std::uint64_t>;  // a process and when it started

  void write_readers() const;

  std::string path_;
  Descriptor file_;
  std::multiset<Reader> present_;
  std::set<Reader> absent_;  // readers of the crashed producer that have not come back yet
};

}  // namespace regen::share
