// Producers and consumers of a shared input as real processes, with batches that can be
// distinguished.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "regen/share/input/feed_client.h"
#include "regen/share/input/feed_server.h"
#include "tests/share/support/processes.h"

namespace regen::share {

struct FeedBoard {
  std::atomic<int> made{0};   // batches
  std::atomic<int> taken{0};  // by all consumers
  std::atomic<int> taken_by[3] = {};
  std::atomic<int> wrong{0};     // with another content than their position says
  std::atomic<int> producer{0};  // its process
  std::atomic<int> producers{0};
  std::atomic<int> go{0};
  std::atomic<int> stop{0};
};
FeedBoard& new_feed_board();

struct TestFeed {
  FeedBoard* board;
  std::string path;
  std::int64_t length = 20;  // batches in an epoch
  std::uint32_t slots = 4;
  std::uint64_t bytes = 9000;
  FeedOptions options = {};
  int make_microseconds = 0;
  std::int64_t fails_at = -1;  // index at which the dataset raises
  bool forks = false;          // the producer has a child, FeedBoard::go, that outlives it
};

// Serves until all consumers have left; closes `listens` once it can be reached. 3: another is
// there.
int produce(const TestFeed& feed, int listens = -1);

// A starter that forks producers: they outlive the process that started them.
FeedStarter starter_of(const TestFeed& feed);

// Whether the batch is what its position says, byte for byte.
bool right_batch(const FeedEvent& event);

Result<FeedClient> attach(const TestFeed& feed, FeedRequest request = {});

// Reads until the end of everything; each batch must be right, in order, without gaps. 0: it was.
int read_all(const TestFeed& feed, const FeedRequest& request = {}, int pause_microseconds = 0);

// Descriptors that the process has: of memory called regen-feed, and of anything.
int feeds_left(pid_t process);
std::size_t open_files(pid_t process);
// A process that has ended but was not yet waited for does not count.
bool lives(int process);

class Feed : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  TestFeed feed_{.board = &new_feed_board(), .path = folder_.path("f")};
};

}  // namespace regen::share
