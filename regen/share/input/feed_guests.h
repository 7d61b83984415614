// The producer's side of the consumers of a shared input: their connections from the first moment,
// their messages and their end. Everything happens in the thread that runs the loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "regen/share/input/feed_books.h"
#include "regen/share/input/feed_mark.h"
#include "regen/share/input/feed_wire.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

class FeedGuests {
 public:
  struct Terms {
    std::string settings;      // a JSON object; consumers must come with the same
    std::string extras;        // for every consumer, with the memory
    int memory = -1;           // its descriptor
    std::uint32_t slots = 0;   // for the error when consumers keep them all
    Nanoseconds patience = 0;  // see FeedOptions
  };

  // All of them must outlive it, and its loop's last run.
  FeedGuests(asio::io_context& loop, Descriptor listener, Terms terms, FeedBooks& books,
             FeedMark& mark);

  // Sends what is due after a change to the books.
  void settle();

 private:
  struct Guest;
  using Shared = std::shared_ptr<Guest>;

  void wait_for_first();
  void accept();
  void accept_later();
  bool drop_a_stranger(std::chrono::milliseconds least_age);
  void welcome(FeedSocket socket);
  void read(ConsumerId id, const Shared& guest);
  void on_readable(ConsumerId id, const Shared& guest);
  Status take(ConsumerId id, Guest& guest, const FeedFrame& frame);
  Status hello(ConsumerId id, Guest& guest, const FeedFrame& frame);
  void forget_reader(Guest& guest);
  void close(ConsumerId id);
  void watch_for_stuck(bool stuck);

  Terms terms_;
  asio::io_context& loop_;
  asio::posix::stream_descriptor listener_;
  asio::steady_timer first_consumer_deadline_;
  asio::steady_timer accept_pause_;
  asio::steady_timer stuck_;
  FeedBooks& books_;
  FeedMark& mark_;
  std::map<ConsumerId, Shared> guests_;
  std::size_t next_id_ = 0;
  bool watching_ = false;
};

}  // namespace regen::share
