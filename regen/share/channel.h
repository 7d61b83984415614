// A client's end of the connection to the daemon: whole messages, one after the other, blocking.
#pragma once

#include <optional>
#include <string>

#include "regen/base/result.h"
#include "regen/share/message.h"
#include "regen/share/page.h"

namespace regen::share {

class Channel {
 public:
  // Of nobody: everything it receives is the end.
  Channel() = default;
  // ErrorCode::kMissing when nobody listens there.
  static Result<Channel> open(const std::string& path);

  // A daemon that is gone is noticed by the next receive(), which also has its last words.
  void send(const Message& message);
  // Sleeps until a message is there. Nothing when the daemon is gone; an error when it refused.
  Result<std::optional<Message>> receive();
  // What came along with the last messages, if anything.
  Descriptor take_descriptor() { return std::move(received_); }

 private:
  std::optional<std::string> read_some();

  Descriptor socket_;
  Descriptor received_;
  FrameReader reader_{Direction::kToClient};
};

// One question, one answer, on a connection of its own.
Result<Json> ask(const std::string& path, const Message& question, MessageType answer);

}  // namespace regen::share
