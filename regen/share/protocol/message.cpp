#include "regen/share/protocol/message.h"

#include <algorithm>
#include <array>
#include <utility>

#include "regen/base/text.h"
#include "regen/base/units.h"

namespace regen::share {
namespace {

using enum MessageType;

// The first and the last type of each direction; there are no gaps.
constexpr std::pair kToDaemonTypes{kRegister, kRequests};
constexpr std::pair kToClientTypes{kRegistered, kChanged};

template <typename Number>
void append_number(std::string& out, Number value) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
}

std::uint32_t read_number(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

std::pair<std::uint32_t, std::uint32_t> known_types(Direction direction) {
  const auto& [first, last] = direction == Direction::kToDaemon ? kToDaemonTypes : kToClientTypes;
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last)};
}

constexpr std::array<std::pair<ErrorCode, std::string_view>, 4> kCodes{{
    {ErrorCode::kBadInput, "bad_input"},
    {ErrorCode::kInfeasible, "infeasible"},
    {ErrorCode::kLimit, "limit"},
    {ErrorCode::kMissing, "missing"},
}};

}  // namespace

std::string encode(const Message& message) {
  const std::string body = message.body.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string bytes(kMagic);
  append_number(bytes, kProtocolVersion);
  append_number(bytes, static_cast<std::uint16_t>(message.type));
  append_number(bytes, static_cast<std::uint32_t>(body.size()));
  return bytes + body;
}

Message error_message(const Error& error) {
  const auto code = std::find_if(kCodes.begin(), kCodes.end(),
                                 [&](const auto& entry) { return entry.first == error.code; });
  return {kError, {{"message", on_one_line(error.message, 1000)}, {"code", code->second}}};
}

Error decode_error(const Json& body) {
  const auto text = [&](const char* key) {
    return body.contains(key) && body[key].is_string() ? body[key].get<std::string>()
                                                       : std::string("(nothing said)");
  };
  const auto code = std::find_if(kCodes.begin(), kCodes.end(),
                                 [&](const auto& entry) { return entry.second == text("code"); });
  return {code == kCodes.end() ? ErrorCode::kBadInput : code->first, text("message")};
}

// Each field is judged as soon as it is there, so that a stranger is not waited for.
Result<FrameReader::Header> FrameReader::header() const {
  const std::string_view bytes = buffer_;
  const std::string_view magic = bytes.substr(0, kMagic.size());
  if (magic != kMagic.substr(0, magic.size())) {
    return bad_input("message begins with " + in_quotes(magic) + ", expected " + in_quotes(kMagic) +
                     " (not a regen program?)");
  }
  if (bytes.size() < kHeaderBytes) return Header{};
  const std::uint32_t version = read_number(bytes.substr(4, 2));
  if (version != kProtocolVersion) {
    return bad_input("message has version " + std::to_string(version) + ", expected " +
                     std::to_string(kProtocolVersion) + " (another version of regen?)");
  }
  const std::uint32_t type = read_number(bytes.substr(6, 2));
  const auto [first, last] = known_types(direction_);
  if (type < first || type > last) {
    return bad_input("message has the unknown type " + std::to_string(type) + ", expected " +
                     std::to_string(first) + " to " + std::to_string(last));
  }
  const std::size_t length = read_number(bytes.substr(8, 4));
  const std::size_t most = direction_ == Direction::kToDaemon ? kMaxRequestBytes : kMaxReplyBytes;
  if (length < 2 || length > most) {
    return bad_input("message has a body of " + std::to_string(length) + " bytes, expected 2 to " +
                     std::to_string(most));
  }
  return Header{static_cast<MessageType>(type), length};
}

Result<std::optional<Message>> FrameReader::next() {
  if (buffer_.empty()) return std::optional<Message>();
  REGEN_ASSIGN(const Header head, header());
  if (buffer_.size() < kHeaderBytes + head.length || head.length == 0) {
    buffer_.reserve(kHeaderBytes + head.length);  // and no more
    return std::optional<Message>();
  }
  const std::string_view text = std::string_view(buffer_).substr(kHeaderBytes, head.length);
  REGEN_ASSIGN(Json body, parse_json(text, "message body"));
  REGEN_TRY(JsonCursor(body, "message body").expect_object());
  buffer_.erase(0, kHeaderBytes + head.length);
  return std::optional(Message{head.type, std::move(body)});
}

Error FrameReader::cut_off() const {
  const auto head = header();
  const std::size_t whole = kHeaderBytes + (head.ok() ? head->length : 0);
  return bad_input("message ends after " + std::to_string(buffer_.size()) +
                   " bytes, expected at least " + std::to_string(whole));
}

}  // namespace regen::share
