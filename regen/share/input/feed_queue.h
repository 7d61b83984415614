// Which batch is in which slot, and which consumers still need it: the state of one shared input,
// without memory, sockets or clock.
//
//   filler ── begin() ──► slot being filled ── publish() ──► queue of every consumer
//                 ▲                                               │ want()
//                 │                                               ▼
//             free slot ◄── the last give_back() or remove() ── held by consumers
//
// Positions run (epoch, index): (0,0) (0,1) (0,2) end of epoch 0, (1,0) ... A consumer has a next
// position: the first that was not put into its queue yet. The filler makes the least of them, so
// that a consumer that comes back with an earlier position is served by going back, and no consumer
// gets a batch twice.
//
// Invariants between two calls:
//   - the references of a slot are the queues that hold its batch and the consumers that took it;
//     a slot without references is free, but keeps its batch until it is filled again;
//   - a consumer gets each position at most once, in ascending order, without a gap unless it is
//     kSkip, which reports how many it lost;
//   - at most one slot is being filled; queues hold at most one batch for each slot.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "regen/base/id.h"
#include "regen/base/result.h"

namespace regen::share {

struct Position {
  std::int64_t epoch = 0;
  std::int64_t index = 0;

  auto operator<=>(const Position&) const = default;
};

struct ConsumerTag;
using ConsumerId = Id<ConsumerTag>;

// What happens when every slot is taken and this consumer is the reason.
enum class SlowPolicy : std::uint8_t {
  kWait,  // the others wait for it
  kSkip,  // it loses its oldest batch while another consumer is out of batches
};

// Where a consumer begins that has no position of its own.
enum class Join : std::uint8_t {
  kNow,    // with the oldest batch of this epoch that is still there
  kEpoch,  // with the first batch of an epoch
};

// Something for a consumer.
struct FeedItem {
  enum class Kind : std::uint8_t { kBatch, kEpochEnd, kEnd, kError };
  Kind kind = Kind::kBatch;
  Position position;         // of kEpochEnd: the index is the number of batches
  std::uint32_t slot = 0;    // of kBatch
  std::uint64_t serial = 0;  // of kBatch: which filling of the slot
  std::int64_t lost = 0;     // batches that this consumer lost before this one
  std::string text = {};     // of kError

  bool operator==(const FeedItem&) const = default;
};

class FeedQueue {
 public:
  struct Options {
    std::uint32_t slots = 8;
    std::int64_t epochs = INT64_MAX;
    // Nothing is made until so many are ready, or one has come that has a position.
    std::int64_t first_consumers = 1;
    Position start = {};
  };
  struct Fill {
    std::uint32_t slot = 0;
    std::uint64_t serial = 0;
    Position position;
    bool jumped = false;  // it does not follow the one before
  };
  struct Delivery {
    ConsumerId consumer;
    FeedItem item;
  };

  explicit FeedQueue(const Options& options);

  // Consumers. Ids must be new in add(), and known in all other calls.
  void add(ConsumerId id, SlowPolicy policy, Join join);
  void add(ConsumerId id, SlowPolicy policy, Position next);
  // It can read: what is made from now on is not lost on it. One that asks for a batch is ready too.
  void ready(ConsumerId id);
  // It is gone: what it held returns.
  void remove(ConsumerId id);
  // It asks for no more, but still reads what it holds.
  void leave(ConsumerId id);
  // It goes on elsewhere, and will not come back to what it leaves out.
  void move(ConsumerId id, Position next);
  // It waits for its next item, which comes as a delivery. Refused while it waits already.
  Status want(ConsumerId id);
  Status give_back(ConsumerId id, std::uint32_t slot, std::uint64_t serial);

  // The filler: what to make next, and where; nothing while it has to wait. After begin() comes
  // publish(), end_epoch() or fail().
  std::optional<Fill> begin();
  void publish();
  void end_epoch();             // there is nothing at the position of begin()
  void fail(std::string text);  // for all consumers, once the queues are empty
  bool failed() const { return !failure_.empty(); }

  std::vector<Delivery> take_deliveries();

  // At least one consumer came, and all have left.
  bool over() const { return consumers_seen_ > 0 && active() == 0; }
  // Every slot is held by consumers that wait for more: only a consumer that gives a batch back
  // while it waits (from another thread) can go on.
  bool stuck() const;
  // Ends it for the consumers that are stuck.
  void fail_stuck(const std::string& text);

  // What would be made next if no consumer needs another position.
  Position position() const { return cursor_; }
  std::int64_t active() const;
  std::int64_t published() const { return published_; }
  std::uint32_t references(std::uint32_t slot) const;

 private:
  struct Slot {
    std::uint64_t serial = 0;
    std::uint32_t references = 0;
  };
  struct Consumer {
    SlowPolicy policy = SlowPolicy::kWait;
    Position next;
    std::deque<FeedItem> queue = {};
    std::set<std::uint32_t> held = {};
    bool wanting = false;
    bool left = false;
    bool ready = false;
    bool began = false;     // has a position of its own
    std::int64_t lost = 0;  // behind the last item of the queue
    std::string error = {};
  };

  Consumer& insert(ConsumerId id, SlowPolicy policy);
  // Into the queue: what is there from `first` on.
  void queue_from(Consumer& consumer, const std::deque<FeedItem>::const_iterator& first);
  void follow(Position next);
  void go_to(Consumer& consumer, Position next);
  bool still_there(const FeedItem& item) const;
  std::optional<Position> wanted() const;
  std::optional<std::uint32_t> free_slot();
  std::optional<std::uint32_t> take_from_slow();
  std::optional<std::uint32_t> take_back();
  void shorten(Consumer& consumer, Position end);
  static void lose_oldest(Consumer& consumer);
  static std::deque<FeedItem>::iterator oldest_batch(Consumer& consumer);
  bool a_consumer_waits() const;
  void put(const FeedItem& item);
  void drop_queue(Consumer& consumer);
  void deliver(ConsumerId id, Consumer& consumer);
  std::optional<FeedItem> next_item(Consumer& consumer);

  Options options_;
  std::vector<Slot> slots_;
  std::map<ConsumerId, Consumer> consumers_;
  // What was made, without gaps, as far as the slots still have it; the oldest first.
  std::deque<FeedItem> history_;
  std::optional<std::uint32_t> filling_;
  Position cursor_;  // what is made, or would be made next
  bool jumped_ = true;
  std::uint64_t serials_ = 0;
  std::int64_t consumers_seen_ = 0;
  std::int64_t consumers_ready_ = 0;  // and those that have gone since
  std::int64_t published_ = 0;
  std::string failure_;
  std::vector<Delivery> deliveries_;
};

}  // namespace regen::share
