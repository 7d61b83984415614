// A client's end of the connection to the daemon: whole messages, one after the other, blocking.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/protocol/message.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

class Channel {
 public:
  // Without a connection: every receive reports the end.
  Channel() = default;
  // ErrorCode::kMissing when no process listens there.
  static Result<Channel> open(const std::string& path);

  // The end of the daemon is reported by the next receive(), after its last messages.
  void send(const Message& message);
  // Called before each sleep, with the descriptor; returns when there is something to read, or else with
  // the error with which receive() ends.
  using Sleep = std::function<Status(int descriptor)>;

  // Sleeps until a message is there. Nothing when the daemon is gone; an error when it refused.
  Result<std::optional<Message>> receive(const Sleep& sleep = {});
  // The same, without sleeping: nothing also when no whole message is there yet.
  Result<std::optional<Message>> receive_now();
  // What came along with the last messages, if anything.
  std::vector<Descriptor> take_descriptors() { return std::exchange(received_, {}); }
  // Whether a receive has reported the end.
  bool ended() const { return ended_; }
  // Whether the daemon has closed its end, though messages may still be there.
  bool hung_up() const;
  // Readable when there is something to receive; -1 without a connection.
  int descriptor() const { return socket_.number(); }

 private:
  Result<std::optional<Message>> next_message(int flags, const Sleep& sleep);
  std::optional<std::string> read_some(int flags);

  Descriptor socket_;
  std::vector<Descriptor> received_;
  FrameReader reader_{Direction::kToClient};
  bool ended_ = false;
  bool lost_descriptors_ = false;
};

// One question, one answer, on a connection of its own.
Result<Json> ask(const std::string& path, const Message& question, MessageType answer);

}  // namespace regen::share
