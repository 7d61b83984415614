// The producer of a shared input: a thread that serves the consumers, and calls for the code that
// makes the batches (the filler):
//
//   auto server = FeedServer::open(path, options);      // the only producer at that path
//   REGEN_TRY(server->start(slots, slot_bytes));        // consumers are answered from now on
//   while (const auto fill = server->begin()) {         // sleeps until there is room and a taker
//     make batch fill->position;
//     copy it to server->place(layout, bytes);
//     server->publish();                                // or end_epoch(), or fail(text)
//   }                                                   // all consumers have left
//
// Only the serving thread reads and writes sockets (FeedGuests); FeedBooks is where the two meet.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "regen/base/result.h"
#include "regen/share/input/feed_queue.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

struct FeedOptions {
  std::string settings = "{}";  // a JSON object; consumers must come with the same
  std::int64_t epochs = INT64_MAX;
  std::int64_t first_consumers = 1;
  Position start = {};
  unsigned mode = 0600;
  // How long it waits for a first consumer, for the greeting of a connection, and before it reports
  // that consumers keep all slots.
  Nanoseconds patience = 10'000'000'000;
};

class FeedServer {
 public:
  // Refused when another producer is there.
  static Result<FeedServer> open(const std::string& path, const FeedOptions& options);
  FeedServer(FeedServer&&) noexcept;
  ~FeedServer();

  // Before all that follows. `extras` goes to every consumer with the memory.
  Status start(std::uint32_t slots, std::uint64_t slot_bytes, const std::string& extras = "");

  // What to make next; nothing when all consumers have left, or after fail().
  std::optional<FeedQueue::Fill> begin();
  // Where the data of the batch begun goes; an error when it is too large for a slot.
  Result<char*> place(const std::string& layout, std::uint64_t data_bytes);
  void publish();
  // Refused for an epoch without any batch.
  Status end_epoch();
  void fail(const std::string& text);

  std::int64_t published() const;
  std::int64_t consumers() const;
  std::uint64_t slot_bytes() const;

 private:
  struct Opened;
  struct Service;
  explicit FeedServer(std::unique_ptr<Opened> opened);

  std::unique_ptr<Opened> opened_;
  std::unique_ptr<Service> service_;
};

}  // namespace regen::share
