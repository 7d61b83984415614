// Producers and consumers of a shared input as real processes, with batches that can be told apart.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "regen/share/input/feed_client.h"
#include "regen/share/input/feed_server.h"
#include "tests/share/processes.h"

namespace regen::share {

struct FeedBoard {
  std::atomic<int> made{0};   // batches
  std::atomic<int> taken{0};  // by anybody
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
};

// Serves until everybody has left; closes `listens` once it can be reached. 3: another is there.
int produce(const TestFeed& feed, int listens = -1);

// A starter that forks producers: they live on without whoever started them.
FeedStarter starter_of(const TestFeed& feed);

// Whether the batch is what its position says, byte for byte.
bool right_batch(const FeedEvent& event);

Result<FeedClient> attach(const TestFeed& feed, FeedRequest request = {});

}  // namespace regen::share
