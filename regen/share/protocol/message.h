// The messages between jobs and the daemon: a header that says version, type and length, and a JSON
// object (docs/reference/protocol.md has the table).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "regen/base/json.h"
#include "regen/base/result.h"

namespace regen::share {

inline constexpr std::string_view kMagic = "RGSH";
inline constexpr std::uint16_t kProtocolVersion = 1;
inline constexpr std::size_t kHeaderBytes = 12;
inline constexpr std::size_t kMaxRequestBytes = 64 << 10;
inline constexpr std::size_t kMaxReplyBytes = 16 << 20;

enum class MessageType : std::uint16_t {
  kRegister = 1,
  kAcquire = 2,
  kYield = 3,
  kIdle = 4,
  kCheck = 5,
  kStatus = 6,
  kUpdate = 7,
  kConfirm = 8,
  kMadeRoom = 9,
  kChange = 10,
  kRequests = 11,
  kRegistered = 65,
  kGranted = 66,
  kFits = 67,
  kReport = 68,
  kError = 69,
  kUpdated = 70,
  kLimit = 71,
  kMakeRoom = 72,
  kChanged = 73,
};

struct Message {
  MessageType type = MessageType::kStatus;
  Json body = Json::object();

  bool operator==(const Message&) const = default;
};

// Which way messages go decides which types and lengths are allowed.
enum class Direction : std::uint8_t { kToDaemon, kToClient };

std::string encode(const Message& message);
Message error_message(const Error& error);
// What an error message says; its code is kept.
Error decode_error(const Json& body);

// Turns a stream of bytes into messages. After its first error it is of no more use.
class FrameReader {
 public:
  explicit FrameReader(Direction direction) : direction_(direction) {}

  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole message; nothing when more bytes are needed.
  Result<std::optional<Message>> next();
  // Whether the bytes so far end inside a message.
  bool inside_message() const { return !buffer_.empty(); }
  // What is wrong when the stream ends here.
  Error cut_off() const;
  // Bytes that no message was made of yet.
  std::string_view pending() const { return buffer_; }

 private:
  struct Header {
    MessageType type;
    std::size_t length;
  };
  Result<Header> header() const;

  Direction direction_;
  std::string buffer_;
};

}  // namespace regen::share
