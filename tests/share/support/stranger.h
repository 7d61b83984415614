// A client at the daemon's listen socket that sends arbitrary bytes.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "regen/share/protocol/address.h"
#include "regen/share/protocol/message.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

// A raw connection that sends any bytes.
class Stranger {
 public:
  explicit Stranger(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    const auto address = socket_address(path).value();
    connected_ = ::connect(socket_.number(), reinterpret_cast<const sockaddr*>(&address),
                           sizeof address) == 0;
  }
  bool connected() const { return connected_; }
  void send(const std::string& bytes) {
    (void)!::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void end() { ::shutdown(socket_.number(), SHUT_WR); }
  // Everything until the daemon closes.
  std::string rest() {
    std::string all;
    char buffer[4096];
    ssize_t count = 0;
    while ((count = ::recv(socket_.number(), buffer, sizeof buffer, 0)) > 0) {
      all.append(buffer, static_cast<std::size_t>(count));
    }
    return all;
  }
  // The message of the one error; anything else comes back as itself.
  std::string error() {
    const std::string bytes = rest();
    FrameReader reader(Direction::kToClient);
    reader.append(bytes);
    const auto message = reader.next();
    if (!message.ok() || !message->has_value() || reader.inside_message())
      return "not one: " + bytes;
    return decode_error((**message).body).message;
  }

 private:
  Descriptor socket_;
  bool connected_ = false;
};

// A message with this body, whatever it is.
inline std::string frame(const std::string& body, MessageType type = MessageType::kRegister) {
  std::string bytes = encode({type, Json::object()});
  bytes.resize(8);
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(body.size() >> (8 * i));
  return bytes + body;
}

}  // namespace regen::share
