#include "regen/share/input/feed_wire.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "regen/base/text.h"
#include "regen/share/input/feed_segment.h"
#include "regen/share/protocol/process_end.h"
#include "regen/share/protocol/unix_socket.h"

namespace regen::share {
namespace {

constexpr char kFrameMagic[4] = {'R', 'G', 'F', 'D'};
// While the kernel has no memory for a packet.
constexpr auto kSendPause = std::chrono::milliseconds(1);
constexpr int kMemoryTries = 20;

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
  return from_consumer ? kind >= 1 && kind <= 6 : kind >= 65 && kind <= 69;
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
                     (from_consumer ? "1 to 6" : "65 to 69"));
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
  other_process_ = peer_of(number()).pid;
  if (other_process_ <= 0) return;
  process_ = process_descriptor(other_process_);
  ended_ = !process_.valid() && errno == ESRCH;
}

Result<FeedSocket> FeedSocket::connect(const std::string& path) {
  REGEN_ASSIGN(Descriptor connected, connect_to(path, SOCK_SEQPACKET, {"producer"}));
  // Another user may have made the folder first.
  const uid_t owner = peer_of(connected.number()).uid;
  if (owner != ::getuid() && owner != 0) {
    return bad_input("the producer at " + in_quotes(path) + " is of user " + std::to_string(owner) +
                     ", expected " + std::to_string(::getuid()) +
                     " (or another REGEN_INPUT_FOLDER)");
  }
  FeedSocket socket(std::move(connected));
  if (socket.other_process_ended()) return missing("no producer at " + in_quotes(path) + ": ended");
  return socket;
}

bool FeedSocket::send(const FeedFrame& frame, int descriptor) const {
  const std::string packet = encode(frame);
  const std::span<const int> extra(&descriptor, descriptor >= 0 ? 1 : 0);
  for (int attempt = 0;; ++attempt) {
    if (send_to(number(), packet, extra, MSG_DONTWAIT) == std::ssize(packet)) return true;
    if ((errno != ENOBUFS && errno != ENOMEM) || attempt == kMemoryTries) return false;
    std::this_thread::sleep_for(kSendPause);
  }
}

bool FeedSocket::send_when_taken(const FeedFrame& frame) const {
  constexpr int kPauseInMilliseconds = 20;  // the kernel does not say when it has memory again
  while (!send(frame)) {
    const bool full = errno == EAGAIN || errno == EWOULDBLOCK;
    const bool short_of_memory = errno == ENOBUFS || errno == ENOMEM;
    if ((!full && !short_of_memory) || other_process_ended()) return false;
    const short what = full ? POLLOUT : 0;
    std::array<pollfd, 2> both{pollfd{number(), what, 0}, pollfd{process(), POLLIN, 0}};
    ::poll(both.data(), process() >= 0 ? 2 : 1, kPauseInMilliseconds);
  }
  return true;
}

Result<Arrival> FeedSocket::receive(FeedFrame& frame, bool from_consumer) {
  std::array<char, sizeof(RawFrame) + kMaxFrameText + 1> buffer;
  std::vector<Descriptor> extra;
  const ssize_t count = receive_from(number(), buffer, extra, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Arrival::kNothing;
  if (count <= 0) return Arrival::kGone;
  if (!extra.empty()) received_ = std::move(extra.front());
  REGEN_ASSIGN(frame, decode({buffer.data(), static_cast<std::size_t>(count)}, from_consumer));
  return Arrival::kFrame;
}

bool FeedSocket::wait() const {
  if (ended_) return true;
  std::array<pollfd, 2> both{pollfd{number(), POLLIN, 0}, pollfd{process(), POLLIN, 0}};
  return ::poll(both.data(), process() >= 0 ? 2 : 1, -1) > 0 || errno != EINTR;
}

bool FeedSocket::other_process_ended() const {
  pollfd one{process(), POLLIN, 0};
  return ended_ || (process() >= 0 && ::poll(&one, 1, 0) > 0);
}

}  // namespace regen::share
