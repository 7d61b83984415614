#include "regen/share/input/feed_wire.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "regen/base/text.h"
#include "regen/share/address.h"
#include "regen/share/input/feed_segment.h"

namespace regen::share {
namespace {

constexpr char kFrameMagic[4] = {'R', 'G', 'F', 'D'};

// Both ends run on one machine: its own byte order will do.
struct RawFrame {
  char magic[4];
  std::uint16_t version;
  std::uint16_t kind;
  std::uint8_t policy;
  std::uint8_t join;
  std::uint8_t resumes;
  std::uint8_t reserved;
  std::uint32_t slot;
  std::uint64_t serial;
  std::int64_t epoch;
  std::int64_t index;
  std::int64_t lost;
};
static_assert(sizeof(RawFrame) == 48);

bool known_kind(std::uint16_t kind, bool from_consumer) {
  return from_consumer ? kind >= 1 && kind <= 5 : kind >= 65 && kind <= 69;
}

ucred peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer = {};
  return peer;
}

// The process at the other end, as a descriptor that outlives no reuse of its number.
Descriptor process_of(int socket) {
  const ucred peer = peer_of(socket);
  if (peer.pid <= 0) return {};
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
}

}  // namespace

std::string encode(const FeedFrame& frame) {
  RawFrame raw{};
  std::memcpy(raw.magic, kFrameMagic, sizeof kFrameMagic);
  raw.version = kFeedVersion;
  raw.kind = static_cast<std::uint16_t>(frame.kind);
  raw.policy = static_cast<std::uint8_t>(frame.policy);
  raw.join = static_cast<std::uint8_t>(frame.join);
  raw.resumes = frame.resumes ? 1 : 0;
  raw.slot = frame.slot;
  raw.serial = frame.serial;
  raw.epoch = frame.position.epoch;
  raw.index = frame.position.index;
  raw.lost = frame.lost;
  std::string packet(sizeof raw, '\0');
  std::memcpy(packet.data(), &raw, sizeof raw);
  return packet + frame.text.substr(0, kMaxFrameText);
}

Result<FeedFrame> decode(std::string_view packet, bool from_consumer) {
  RawFrame raw{};
  if (packet.size() < sizeof raw || packet.size() > sizeof raw + kMaxFrameText) {
    return bad_input("packet has " + std::to_string(packet.size()) + " bytes, expected " +
                     std::to_string(sizeof raw) + " to " +
                     std::to_string(sizeof raw + kMaxFrameText));
  }
  std::memcpy(&raw, packet.data(), sizeof raw);
  if (std::memcmp(raw.magic, kFrameMagic, sizeof kFrameMagic) != 0) {
    return bad_input("packet begins with " + in_quotes(packet.substr(0, 4)) +
                     ", expected 'RGFD' (not a regen program?)");
  }
  if (raw.version != kFeedVersion) {
    return bad_input("packet has version " + std::to_string(raw.version) + ", expected " +
                     std::to_string(kFeedVersion) + " (another version of regen?)");
  }
  if (!known_kind(raw.kind, from_consumer)) {
    return bad_input("packet has the unknown kind " + std::to_string(raw.kind) + ", expected " +
                     (from_consumer ? "1 to 5" : "65 to 69"));
  }
  if (raw.policy > 1 || raw.join > 1 || raw.resumes > 1 || raw.reserved != 0) {
    return bad_input("packet has a policy, start or mark that is neither 0 nor 1");
  }
  if (raw.epoch < 0 || raw.index < 0 || raw.lost < 0) {
    return bad_input("packet has position " + std::to_string(raw.epoch) + ", " +
                     std::to_string(raw.index) + " and " + std::to_string(raw.lost) +
                     " lost, expected no negative number");
  }
  return FeedFrame{.kind = static_cast<FrameKind>(raw.kind),
                   .policy = static_cast<SlowPolicy>(raw.policy),
                   .join = static_cast<Join>(raw.join),
                   .resumes = raw.resumes == 1,
                   .slot = raw.slot,
                   .serial = raw.serial,
                   .position = {raw.epoch, raw.index},
                   .lost = raw.lost,
                   .text = std::string(packet.substr(sizeof raw))};
}

FeedSocket::FeedSocket(Descriptor socket) : socket_(std::move(socket)) {
  process_ = process_of(number());
}

Result<FeedSocket> FeedSocket::connect(const std::string& path) {
  REGEN_ASSIGN(const sockaddr_un address, socket_address(path));
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  int failed = -1;
  do {
    failed =
        ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) {
    const std::string reason = std::strerror(errno);
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return missing("no producer at " + in_quotes(path) + ": " + reason);
    }
    return bad_input("may not use the socket " + in_quotes(path) + ": " + reason);
  }
  // Somebody else may have made the folder first.
  const uid_t owner = peer_of(socket.number()).uid;
  if (owner != ::getuid() && owner != 0) {
    return bad_input("the producer at " + in_quotes(path) + " is of user " + std::to_string(owner) +
                     ", expected " + std::to_string(::getuid()) +
                     " (or another REGEN_INPUT_FOLDER)");
  }
  return FeedSocket(std::move(socket));
}

bool FeedSocket::send(const FeedFrame& frame, int descriptor) const {
  std::string packet = encode(frame);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part{packet.data(), packet.size()};
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  if (descriptor >= 0) {
    head.msg_control = control.data();
    head.msg_controllen = control.size();
    cmsghdr* extra = CMSG_FIRSTHDR(&head);
    extra->cmsg_level = SOL_SOCKET;
    extra->cmsg_type = SCM_RIGHTS;
    extra->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(extra), &descriptor, sizeof descriptor);
  }
  ssize_t count = -1;
  do {
    count = ::sendmsg(number(), &head, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(packet.size());
}

Result<Arrival> FeedSocket::receive(FeedFrame& frame, bool from_consumer) {
  std::array<char, sizeof(RawFrame) + kMaxFrameText + 1> buffer;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control.data();
  head.msg_controllen = control.size();
  ssize_t count = -1;
  do {
    count = ::recvmsg(number(), &head, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Arrival::kNothing;
  if (count <= 0) return Arrival::kGone;
  const cmsghdr* extra = CMSG_FIRSTHDR(&head);
  if (extra != nullptr && extra->cmsg_level == SOL_SOCKET && extra->cmsg_type == SCM_RIGHTS) {
    int sent = -1;
    std::memcpy(&sent, CMSG_DATA(extra), sizeof sent);
    received_ = Descriptor(sent);
  }
  REGEN_ASSIGN(frame, decode({buffer.data(), static_cast<std::size_t>(count)}, from_consumer));
  return Arrival::kFrame;
}

bool FeedSocket::wait() const {
  std::array<pollfd, 2> both{pollfd{number(), POLLIN, 0}, pollfd{process(), POLLIN, 0}};
  return ::poll(both.data(), process() >= 0 ? 2 : 1, -1) > 0 || errno != EINTR;
}

bool FeedSocket::other_process_ended() const {
  pollfd one{process(), POLLIN, 0};
  return process() >= 0 && ::poll(&one, 1, 0) > 0;
}

}  // namespace regen::share
