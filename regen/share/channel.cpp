#include "regen/share/channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "regen/base/text.h"
#include "regen/share/address.h"

namespace regen::share {
namespace {

constexpr std::size_t kMostDescriptors = 4;

Error not_there(const std::string& path) {
  const std::string reason = std::strerror(errno);
  if (errno == EACCES) {
    return bad_input("may not use the socket " + in_quotes(path) + ": " + reason);
  }
  return missing("no daemon at " + in_quotes(path) + ": " + reason +
                 ", expected a running `regen share serve`");
}

}  // namespace

Result<Channel> Channel::open(const std::string& path) {
  REGEN_ASSIGN(const sockaddr_un address, socket_address(path));
  Channel channel;
  channel.socket_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int number = channel.socket_.number();
  if (number < 0) return not_there(path);
  int failed = -1;
  do {
    failed = ::connect(number, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) return not_there(path);
  return channel;
}

void Channel::send(const Message& message) {
  const std::string bytes = encode(message);
  for (std::size_t sent = 0; sent < bytes.size();) {
    const auto count =
        ::send(socket_.number(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    sent += static_cast<std::size_t>(count);
  }
}

std::optional<std::string> Channel::read_some(int flags) {
  std::array<char, 16384> buffer;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control.data();
  head.msg_controllen = control.size();
  ssize_t count = -1;
  do {
    count = ::recvmsg(socket_.number(), &head, MSG_CMSG_CLOEXEC | flags);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return std::nullopt;
  const cmsghdr* extra = CMSG_FIRSTHDR(&head);
  if (extra != nullptr && extra->cmsg_level == SOL_SOCKET && extra->cmsg_type == SCM_RIGHTS) {
    const std::size_t size = (extra->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < size; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(extra) + i * sizeof number, sizeof number);
      received_.emplace_back(number);
    }
  }
  return std::string(buffer.data(), static_cast<std::size_t>(count));
}

Result<std::optional<Message>> Channel::receive() {
  while (true) {
    REGEN_ASSIGN(std::optional<Message> message, reader_.next());
    if (message && message->type == MessageType::kError) return decode_error(message->body);
    if (message) return message;
    const std::optional<std::string> bytes = read_some(0);
    if (!bytes) return std::optional<Message>();
    reader_.append(*bytes);
  }
}

Result<std::optional<Message>> Channel::receive_now() {
  while (true) {
    REGEN_ASSIGN(std::optional<Message> message, reader_.next());
    if (message && message->type == MessageType::kError) return decode_error(message->body);
    if (message) return message;
    const std::optional<std::string> bytes = read_some(MSG_DONTWAIT);
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
      (message ? " gave another answer than asked for" : " went away without an answer"));
}

}  // namespace regen::share
