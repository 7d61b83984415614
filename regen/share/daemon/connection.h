// One client's connection in the daemon: bytes in, messages to the listener, and back. Whatever the
// other side does, it costs a bounded amount of memory and ends in at most one error.
#pragma once

#include <array>
#include <asio/local/stream_protocol.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/protocol/job.h"
#include "regen/share/protocol/message.h"
#include "regen/share/protocol/page.h"
#include "regen/share/protocol/peer.h"

namespace regen::share {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = asio::local::stream_protocol::socket;

  // What the daemon does about it. It must outlive the connection.
  class Listener {
   public:
    virtual void on_message(Connection& connection, const Message& message) = 0;
    // A request for the metrics by HTTP.
    virtual std::string on_metrics(Connection& connection) = 0;
    // Something came that deserved an error.
    virtual void on_refused() = 0;
    virtual void on_closed(Connection& connection) = 0;

   protected:
    ~Listener() = default;
  };

  // `patience`: how long a message may stay incomplete, and an unregistered client silent.
  Connection(Socket socket, Listener& listener, Nanoseconds patience);

  void start();
  // At most four descriptors go along.
  void send(const Message& message, std::vector<Descriptor> extra = {});
  // Whole messages that others are sent too, encoded once.
  void send(std::shared_ptr<const std::string> bytes);
  // Whether the other side has not taken all that was sent.
  bool backed_up() const { return !outgoing_.empty(); }
  // Sends the error, then closes.
  void refuse(const Error& error);
  void close();
  // Once registered, silence is fine.
  void set_registered();
  // The process at the other end, as it was when it connected.
  const Peer& peer() const { return peer_; }
  // It has been refused or has ended: nothing of it counts any more.
  bool over() const { return closing_ || closed_; }
  bool registered() const { return registered_; }
  // Nothing more is read for so long, and no message that has arrived is handled.
  void pause(Nanoseconds time);
  // When it last said something, or connected.
  Nanoseconds heard_at() const { return heard_at_; }

 private:
  struct Outgoing {
    std::shared_ptr<const std::string> bytes;
    std::size_t sent = 0;
    std::vector<Descriptor> extra = {};
  };

  void read();
  void take_messages();
  void continue_later();
  void watch_for_hang_up();
  void put(Outgoing outgoing);
  bool answered_http();
  void on_end();
  void flush();
  enum class Sent : std::uint8_t { kAll, kLater, kWhenThereIsMemory };
  Sent send_front();
  void flush_later(Sent when);
  void watch();

  Socket socket_;
  Listener& listener_;
  Nanoseconds patience_;
  asio::steady_timer timer_;
  FrameReader reader_{Direction::kToDaemon};
  std::array<char, 4096> buffer_;
  std::deque<Outgoing> outgoing_;
  bool reading_ = false;
  bool writing_ = false;
  bool closing_ = false;  // as soon as everything is sent
  bool closed_ = false;
  bool registered_ = false;
  bool later_ = false;  // the rest of what has arrived is handled in another turn of the loop
  bool paused_ = false;
  Peer peer_;
  asio::steady_timer pause_;
  asio::steady_timer memory_pause_;
  Nanoseconds heard_at_;
};

}  // namespace regen::share
