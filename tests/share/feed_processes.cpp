#include "tests/share/feed_processes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <new>
#include <thread>

namespace regen::share {
namespace {

// Another number for every place of every batch.
std::uint32_t content(Position position, std::uint64_t at) {
  const std::uint64_t seed = static_cast<std::uint64_t>(position.epoch * 100003 + position.index);
  return static_cast<std::uint32_t>((seed * 2654435761u + at * 40503u) >> 3);
}

void make_batch(const TestFeed& feed, FeedServer& server, Position position) {
  std::this_thread::sleep_for(std::chrono::microseconds(feed.make_microseconds));
  const auto count = static_cast<std::int64_t>(feed.bytes / 4);
  BatchNode root{.kind = BatchNode::Kind::kTensor, .type = ElementType::kInt32, .shape = {count}};
  const std::uint64_t bytes = place_tensors(root);
  const auto place = server.place(encode_layout(root), bytes);
  if (!place.ok()) return server.fail(place.error().message);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t number = content(position, static_cast<std::uint64_t>(i));
    std::memcpy(*place + 4 * i, &number, 4);
  }
  ++feed.board->made;
  server.publish();
}

}  // namespace

FeedBoard& new_feed_board() {
  void* memory =
      ::mmap(nullptr, sizeof(FeedBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *new (memory) FeedBoard;
}

int produce(const TestFeed& feed, int listens) {
  auto server = FeedServer::open(feed.path, feed.options);
  if (!server.ok()) return 3;
  ++feed.board->producers;
  feed.board->producer = ::getpid();
  if (listens >= 0) ::close(listens);
  if (!server->start(feed.slots, feed.bytes + 4096).ok()) return 4;
  while (const auto fill = server->begin()) {
    if (fill->position.index == feed.fails_at) {
      server->fail("the dataset raised ValueError: row 7 is bad");
    } else if (fill->position.index < feed.length) {
      make_batch(feed, *server, fill->position);
    } else if (const Status ended = server->end_epoch(); !ended.ok()) {
      server->fail(ended.error().message);
    }
  }
  return 0;
}

FeedStarter starter_of(const TestFeed& feed) {
  return [feed](Position start) -> Status {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return limit_reached("no pipe");
    const pid_t middle = ::fork();
    if (middle == 0) {
      if (::fork() != 0) ::_exit(0);
      TestFeed from = feed;
      from.options.start = start;
      ::close(ends[0]);
      ::_exit(produce(from, ends[1]));
    }
    ::close(ends[1]);
    ::waitpid(middle, nullptr, 0);
    char end = 0;
    (void)!::read(ends[0], &end, 1);
    ::close(ends[0]);
    return {};
  };
}

bool right_batch(const FeedEvent& event) {
  if (event.layout.shape.size() != 1) return false;
  const char* data = event.lease->batch().data + event.layout.offset;
  for (std::int64_t i = 0; i < event.layout.shape[0]; ++i) {
    std::uint32_t number = 0;
    std::memcpy(&number, data + 4 * i, 4);
    if (number != content(event.position, static_cast<std::uint64_t>(i))) return false;
  }
  return true;
}

Result<FeedClient> attach(const TestFeed& feed, FeedRequest request) {
  request.path = feed.path;
  request.settings = feed.options.settings;
  return FeedClient::attach(request, starter_of(feed));
}

}  // namespace regen::share
