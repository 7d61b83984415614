#include "regen/share/protocol/unix_socket.h"

#include <array>
#include <cerrno>
#include <cstring>

#include "regen/base/text.h"
#include "regen/share/protocol/address.h"

namespace regen::share {
namespace {

using Control = std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))>;

Error not_connected(const std::string& path, const Expected& peer) {
  const std::string reason = std::strerror(errno);
  if (errno == EACCES || errno == EPERM || errno == EPROTOTYPE) {
    return bad_input("may not use the socket " + in_quotes(path) + ": " + reason);
  }
  return missing("no " + peer.name + " at " + in_quotes(path) + ": " + reason +
                 (peer.remedy.empty() ? "" : ", expected " + peer.remedy));
}

void put_descriptors(msghdr& head, std::span<const int> descriptors) {
  if (descriptors.empty()) {
    head.msg_control = nullptr;
    head.msg_controllen = 0;
    return;
  }
  head.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* rights = CMSG_FIRSTHDR(&head);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
}

void take_descriptors(const msghdr& head, std::vector<Descriptor>& descriptors) {
  const cmsghdr* rights = CMSG_FIRSTHDR(&head);
  if (rights == nullptr || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS)
    return;
  const std::size_t size = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < size; ++i) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(rights) + i * sizeof number, sizeof number);
    descriptors.emplace_back(number);
  }
}

template <typename Call>
ssize_t after_signals(Call call) {
  ssize_t count = -1;
  do {
    count = call();
  } while (count < 0 && errno == EINTR);
  return count;
}

}  // namespace

Result<Descriptor> connect_to(const std::string& path, int type, const Expected& peer) {
  REGEN_ASSIGN(const sockaddr_un address, socket_address(path));
  Descriptor socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return limit_reached("cannot look for a " + peer.name + " at " + in_quotes(path) + ": " +
                         std::strerror(errno));
  }
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  if (after_signals([&] { return ::connect(socket.number(), where, sizeof address); }) != 0) {
    return not_connected(path, peer);
  }
  return socket;
}

ucred peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer = {};
  return peer;
}

ssize_t send_to(int socket, std::string_view bytes, std::span<const int> descriptors, int flags) {
  alignas(cmsghdr) Control control{};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};  // which sendmsg only reads
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control.data();
  head.msg_controllen = control.size();
  put_descriptors(head, descriptors);
  return after_signals([&] { return ::sendmsg(socket, &head, flags | MSG_NOSIGNAL); });
}

ssize_t receive_from(int socket, std::span<char> buffer, std::vector<Descriptor>& descriptors,
                     int flags) {
  alignas(cmsghdr) Control control;
  iovec part{buffer.data(), buffer.size()};
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control.data();
  head.msg_controllen = control.size();
  const ssize_t count =
      after_signals([&] { return ::recvmsg(socket, &head, flags | MSG_CMSG_CLOEXEC); });
  if (count >= 0) take_descriptors(head, descriptors);
  if (count < 0 || (head.msg_flags & MSG_CTRUNC) == 0) return count;
  descriptors.clear();
  errno = EMFILE;
  return -1;
}

}  // namespace regen::share
