#include "regen/share/client/channel.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "regen/base/text.h"
#include "regen/share/protocol/address.h"
#include "regen/share/protocol/unix_socket.h"

namespace regen::share {
namespace {

constexpr auto kMemoryPause = std::chrono::milliseconds(1);
constexpr int kMemoryTries = 100;

// The kernel may be short of memory for a moment, with a connection that is whole.
template <typename Call>
ssize_t when_memory_is_there(Call call) {
  ssize_t count = call();
  for (int i = 0; count < 0 && (errno == ENOBUFS || errno == ENOMEM) && i < kMemoryTries; ++i) {
    std::this_thread::sleep_for(kMemoryPause);
    count = call();
  }
  return count;
}

}  // namespace

Result<Channel> Channel::open(const std::string& path) {
  Channel channel;
  REGEN_ASSIGN(channel.socket_,
               connect_to(path, SOCK_STREAM, {"daemon", "a running `regen share serve`"}));
  const uid_t owner = peer_of(channel.socket_.number()).uid;
  if (is_fallback_socket(path) && owner != ::getuid() && owner != 0) {
    return bad_input("the daemon at " + in_quotes(path) + " is of user " + std::to_string(owner) +
                     ", expected " + std::to_string(::getuid()) +
                     " or root (or its path in REGEN_SHARE_SOCKET or --socket)");
  }
  return channel;
}

// Half a message would leave both sides waiting: what cannot be sent ends the connection.
void Channel::send(const Message& message) {
  const std::string bytes = encode(message);
  for (std::size_t sent = 0; sent < bytes.size();) {
    const auto count = when_memory_is_there(
        [&] { return send_to(socket_.number(), std::string_view(bytes).substr(sent), {}, 0); });
    if (count <= 0) {
      ::shutdown(socket_.number(), SHUT_RDWR);
      return;
    }
    sent += static_cast<std::size_t>(count);
  }
}

std::optional<std::string> Channel::read_some(int flags) {
  std::array<char, 16384> buffer;
  const auto count = when_memory_is_there(
      [&] { return receive_from(socket_.number(), buffer, received_, flags); });
  lost_descriptors_ |= count < 0 && errno == EMFILE;
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) ended_ = true;
  if (count <= 0) return std::nullopt;
  return std::string(buffer.data(), static_cast<std::size_t>(count));
}

bool Channel::hung_up() const {
  pollfd asked{.fd = socket_.number(), .events = 0, .revents = 0};
  return ::poll(&asked, 1, 0) > 0;
}

Result<std::optional<Message>> Channel::receive(const Sleep& sleep) {
  return next_message(0, sleep);
}

Result<std::optional<Message>> Channel::receive_now() {
  return next_message(MSG_DONTWAIT, {});
}

Result<std::optional<Message>> Channel::next_message(int flags, const Sleep& sleep) {
  while (true) {
    REGEN_ASSIGN(std::optional<Message> message, reader_.next());
    if (message && message->type == MessageType::kError) return decode_error(message->body);
    if (message) return message;
    if (sleep) REGEN_TRY(sleep(socket_.number()));
    const std::optional<std::string> bytes = read_some(flags);
    if (lost_descriptors_) {
      return limit_reached(
          "no descriptor is left for what the daemon sends, expected fewer open files or a higher "
          "limit (ulimit -n)");
    }
    if (!bytes) return std::optional<Message>();
    reader_.append(*bytes);
  }
}

Result<Json> ask(const std::string& path, const Message& question, MessageType answer) {
  REGEN_ASSIGN(Channel channel, Channel::open(path));
  channel.send(question);
  REGEN_ASSIGN(std::optional<Message> message, channel.receive());
  if (message && message->type == answer) return std::move(message->body);
  return missing(
      "the daemon at " + in_quotes(path) +
      (message ? " gave another answer than asked for (another version of regen?)"
               : " went away without an answer, expected it to go on (its log may say why)"));
}

}  // namespace regen::share
