// The messages between the producer and the consumers of a shared input: one packet each on a Unix
// socket that keeps packets whole (SOCK_SEQPACKET). A closed socket or an ended process means that
// the other side is gone; the kernel reports it however the process ends.
//
//   consumer                              producer
//     kHello  settings, policy, start  ─►
//                                      ◄─  kWelcome  the memory as SCM_RIGHTS; or kError
//     kReady                           ─►            it has mapped the memory
//     kWant                            ─►
//                                      ◄─  kBatch, kEpochEnd, kEnd or kError
//     kReturn slot, serial             ─►
//     kMove   position                 ─►
//     kBye                             ─►
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "regen/base/result.h"
#include "regen/share/input/feed_queue.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

enum class FrameKind : std::uint16_t {
  kHello = 1,
  kWant = 2,
  kReturn = 3,
  kBye = 4,
  kMove = 5,
  kReady = 6,
  kWelcome = 65,
  kBatch = 66,
  kEpochEnd = 67,
  kEnd = 68,
  kError = 69,
};

inline constexpr std::size_t kMaxFrameText = 16 << 10;

struct FeedFrame {
  FrameKind kind = FrameKind::kWant;
  SlowPolicy policy = SlowPolicy::kWait;  // of kHello
  Join join = Join::kNow;                 // of kHello without a position
  bool resumes = false;                   // of kHello: `position` counts
  std::uint32_t slot = 0;
  std::uint64_t serial = 0;
  Position position = {};
  std::int64_t lost = 0;
  std::string text = {};  // settings of kHello, extras of kWelcome, the message of kError

  bool operator==(const FeedFrame&) const = default;
};

std::string encode(const FeedFrame& frame);
// Refuses what is no whole frame of this version that the other side (`from_consumer` or not) may
// send.
Result<FeedFrame> decode(std::string_view packet, bool from_consumer);

enum class Arrival : std::uint8_t { kFrame, kNothing, kGone };

// One end of a connection. Frames are sent whole or not at all, from any thread.
class FeedSocket {
 public:
  FeedSocket() = default;
  explicit FeedSocket(Descriptor socket);
  // ErrorCode::kMissing when no process listens there.
  static Result<FeedSocket> connect(const std::string& path);

  // False when the other side is gone or does not read. Waits for nothing but, some milliseconds, for memory of the kernel.
  bool send(const FeedFrame& frame, int descriptor = -1) const;
  // Of a consumer: waits while the producer is busy, or the kernel short of memory. False when it is gone.
  bool send_when_taken(const FeedFrame& frame) const;
  // kNothing: no packet is there yet.
  Result<Arrival> receive(FeedFrame& frame, bool from_consumer);
  Descriptor take_descriptor() { return std::move(received_); }

  // Sleeps until a packet may be there or the other side is gone; false when a signal came first.
  bool wait() const;
  // Also when a child of it still has a copy of its socket, or of the one it listened at.
  bool other_process_ended() const;
  // Its number; 0 where the kernel does not say.
  std::int64_t other_process() const { return other_process_; }

  int number() const { return socket_.number(); }
  // Readable when the process at the other end ends, however many copies of its socket its children
  // have; -1 where the kernel does not report the process.
  int process() const { return process_.number(); }

 private:
  Descriptor socket_;
  Descriptor process_;
  std::int64_t other_process_ = 0;
  bool ended_ = false;  // before it was looked for
  Descriptor received_;
};

}  // namespace regen::share
