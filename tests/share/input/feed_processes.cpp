#include "tests/share/input/feed_processes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
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
  feed.board->producer = ::getpid();
  if (feed.forks) {
    const pid_t child = ::fork();
    if (child == 0 && listens >= 0) ::close(listens);
    if (child == 0) ::_exit(::pause());
    feed.board->go = child;
  }
  ++feed.board->producers;
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

int read_all(const TestFeed& feed, const FeedRequest& request, int pause_microseconds) {
  using Kind = FeedItem::Kind;
  auto client = attach(feed, request);
  if (!client.ok()) return 10;
  std::optional<Position> next;
  while (true) {
    auto event = client->next();
    if (!event.ok()) return 11;
    if (event->kind == Kind::kEnd) return 0;
    if (next && event->position != *next && event->lost == 0) return 12;
    if (next && event->position < *next) return 13;
    if (event->lost > 0 && request.policy == SlowPolicy::kWait) return 14;
    next = event->kind == Kind::kBatch ? Position{event->position.epoch, event->position.index + 1}
                                       : Position{event->position.epoch + 1, 0};
    if (event->kind != Kind::kBatch) continue;
    std::this_thread::sleep_for(std::chrono::microseconds(pause_microseconds));
    if (!right_batch(*event)) ++feed.board->wrong;
    ++feed.board->taken;
  }
}

int feeds_left(pid_t process) {
  int count = 0;
  std::error_code gone;
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    count += target.string().find("regen-feed") != std::string::npos ? 1 : 0;
  }
  return count;
}

std::size_t open_files(pid_t process) {
  std::error_code gone;
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder, gone), {}));
}

bool lives(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  return static_cast<bool>(file >> number >> name >> state) && state != "Z" && state != "X";
}

}  // namespace regen::share
