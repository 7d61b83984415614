// A consumer of a shared input. If there is no producer, it starts one. If its producer is lost, it
// attaches again, or starts the next one, and continues at its position:
//
//   auto client = FeedClient::attach(request, starter);
//   while (true) {
//     REGEN_ASSIGN(FeedEvent event, client->next());    // sleeps until there is something
//     ... event.batch, until its lease goes: then the slot may be filled again
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "regen/base/result.h"
#include "regen/share/input/batch_layout.h"
#include "regen/share/input/feed_segment.h"
#include "regen/share/input/feed_wire.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

// A connection and its memory: as long as any batch of it is in use.
struct FeedConnection {
  FeedSocket socket;
  FeedView view;
  std::string extras;
  std::int64_t process = 0;  // that made it: a forked child has no say
};

// One batch in use. When it goes, the producer may use the slot again. From any thread.
class FeedLease {
 public:
  FeedLease(std::shared_ptr<FeedConnection> connection, FeedView::Batch batch, std::uint32_t slot,
            std::uint64_t serial);
  FeedLease(const FeedLease&) = delete;
  ~FeedLease();

  const FeedConnection& connection() const { return *connection_; }
  const FeedView::Batch& batch() const { return batch_; }
  std::uint32_t slot() const { return slot_; }

 private:
  std::shared_ptr<FeedConnection> connection_;
  FeedView::Batch batch_;
  std::uint32_t slot_;
  std::uint64_t serial_;
};

struct FeedEvent {
  FeedItem::Kind kind = FeedItem::Kind::kEnd;  // an error comes as an error
  Position position;
  std::int64_t lost = 0;
  BatchNode layout = {};
  std::shared_ptr<FeedLease> lease = {};  // of a batch
};

struct FeedRequest {
  std::string path;
  std::string settings = "{}";
  SlowPolicy policy = SlowPolicy::kWait;
  Join join = Join::kNow;
  Nanoseconds give_up = 60'000'000'000;  // finding a producer that answers
};

// Starts a producer that begins at the position, and returns once it listens at the path (or has
// found that another one does).
using FeedStarter = std::function<Status(Position)>;

// Used by one thread at a time.
class FeedClient {
 public:
  // A signal that came while it slept asks this: true ends the call with an error.
  using Interrupted = std::function<bool()>;

  static Result<FeedClient> attach(const FeedRequest& request, FeedStarter starter,
                                   Interrupted interrupted = {});
  FeedClient(FeedClient&&) noexcept = default;
  ~FeedClient();

  Result<FeedEvent> next();
  // Goes on at a later position, without what lies between.
  Status move(Position next);
  // Asks for nothing more; batches in use stay.
  void leave();

  // How often its producer was lost.
  int losses() const { return losses_; }
  const std::string& extras() const { return connection_->extras; }

 private:
  FeedClient(const FeedRequest& request, FeedStarter starter, Interrupted interrupted);
  Status connect();
  // False: there was no producer, or it ended before it answered.
  Result<bool> connect_once();
  Result<bool> say_hello(FeedSocket socket);
  // Whether it was this consumer that started it; false also while another one is at it.
  Result<bool> start_producer();
  // The next frame; nothing when the producer is gone.
  Result<std::optional<FeedFrame>> receive(FeedSocket& socket) const;
  Result<FeedEvent> take(const FeedFrame& frame);
  Status count_loss();
  Status on_loss();

  FeedRequest request_;
  FeedStarter starter_;
  Interrupted interrupted_;
  std::shared_ptr<FeedConnection> connection_;
  std::optional<Position> next_;  // nothing before the first item
  bool asked_ = false;            // for what comes next
  int losses_ = 0;
  int losses_in_a_row_ = 0;
};

}  // namespace regen::share
