#include "regen/share/input/feed_server.h"

#include <sys/socket.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "regen/base/text.h"
#include "regen/share/input/feed_books.h"
#include "regen/share/input/feed_guests.h"
#include "regen/share/input/feed_mark.h"
#include "regen/share/input/feed_segment.h"
#include "regen/share/protocol/listen_socket.h"

namespace regen::share {

// Everything that consumers use, from start() on; it ends with the thread that serves them.
struct FeedServer::Service {
  Service(const std::string& path, const ListenSocket& listen_socket, const FeedOptions& options,
          FeedSegment memory, const std::string& extras)
      : segment(std::move(memory)),
        books({.slots = segment.slots(),
               .epochs = options.epochs,
               .first_consumers = options.first_consumers,
               .start = options.start}),
        mark(path, options.start),
        guests(loop, Descriptor::copy_of(listen_socket.listener()),
               {.settings = options.settings,
                .extras = extras,
                .memory = segment.descriptor(),
                .slots = segment.slots(),
                .patience = options.patience},
               books, mark),
        thread([this] { loop.run(); }) {}

  ~Service() {
    loop.stop();
    thread.join();
  }

  // What the filler does to the books.
  template <typename Change>
  void change(Change what) {
    mark.stand_at(books.with([&](FeedQueue& queue) {
      what(queue);
      return queue.position();
    }));
    asio::post(loop, [this] { guests.settle(); });
  }

  FeedSegment segment;
  FeedBooks books;
  FeedMark mark;
  asio::io_context loop;
  FeedGuests guests;
  std::optional<FeedQueue::Fill> fill;
  std::thread thread;
};

struct FeedServer::Opened {
  std::string path;
  FeedOptions options;
  ListenSocket listen_socket;
};

FeedServer::FeedServer(std::unique_ptr<Opened> opened) : opened_(std::move(opened)) {}
FeedServer::FeedServer(FeedServer&&) noexcept = default;
FeedServer::~FeedServer() = default;

Result<FeedServer> FeedServer::open(const std::string& path, const FeedOptions& options) {
  REGEN_ASSIGN(ListenSocket listen_socket,
               ListenSocket::open(path, options.mode,
                                  {.name = "a producer",
                                   .expected = "another name of the shared input",
                                   .type = SOCK_SEQPACKET}));
  return FeedServer(std::make_unique<Opened>(Opened{path, options, std::move(listen_socket)}));
}

Status FeedServer::start(std::uint32_t slots, std::uint64_t slot_bytes, const std::string& extras) {
  REGEN_ASSIGN(FeedSegment segment, FeedSegment::create(slots, slot_bytes));
  const auto& [path, options, listen_socket] = *opened_;
  try {
    service_ = std::make_unique<Service>(path, listen_socket, options, std::move(segment), extras);
  } catch (const std::system_error& error) {
    return limit_reached("cannot serve the shared input at " + in_quotes(path) + ": " +
                         on_one_line(error.what(), 200));
  }
  return {};
}

std::optional<FeedQueue::Fill> FeedServer::begin() {
  service_->fill = service_->books.begin();
  return service_->fill;
}

Result<char*> FeedServer::place(const std::string& layout, std::uint64_t data_bytes) {
  const FeedQueue::Fill& fill = *service_->fill;
  return service_->segment.fill(fill.slot, fill.serial, layout, data_bytes);
}

void FeedServer::publish() {
  service_->change([](FeedQueue& queue) { queue.publish(); });
}

Status FeedServer::end_epoch() {
  const Position position = service_->fill->position;
  if (position.index == 0) {
    return bad_input("epoch " + std::to_string(position.epoch) +
                     " has no batch, expected at least one");
  }
  service_->change([](FeedQueue& queue) { queue.end_epoch(); });
  return {};
}

// The filler has nothing more to do; consumers are served until they leave.
void FeedServer::fail(const std::string& text) {
  service_->change([&](FeedQueue& queue) { queue.fail(text); });
  service_->books.wait_for_end();
}

std::int64_t FeedServer::published() const {
  return service_->books.with([](FeedQueue& queue) { return queue.published(); });
}

std::int64_t FeedServer::consumers() const {
  return service_->books.with([](FeedQueue& queue) { return queue.active(); });
}

std::uint64_t FeedServer::slot_bytes() const {
  return service_->segment.slot_bytes();
}

}  // namespace regen::share
