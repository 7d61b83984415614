// The process at the other end of a connection, as it was when it connected. A number that is looked up later may be another process's by then.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "regen/share/protocol/page.h"

namespace regen::share {

inline constexpr std::int64_t kUnknownUser = -1;

struct Peer {
  std::int64_t process = 0;  // 0: of a container that is not seen from here, or not reported
  std::int64_t user = kUnknownUser;
  std::vector<std::int64_t> groups = {};
  Descriptor descriptor =
      {};  // of the process: readable once it has ended; not valid where the kernel gives none
  bool system_was_short = false;  // of descriptors or memory, and gives none for that reason

  // Whether the process has ended, as far as the kernel says.
  bool ended() const;
  // share::process_start of it; 0 where that cannot be known.
  std::uint64_t start() const;
};

// Of a connected Unix socket.
Peer peer_at(int socket);

// When the process started, in ticks since the machine did. It distinguishes a process from a later
// one with the same number; 0 when there is no such process, and nothing when that cannot be read.
std::optional<std::uint64_t> process_start(std::int64_t process);

// Which process numbers mean the same: those of one namespace of the kernel. 0: unknown.
std::uint64_t process_namespace();

}  // namespace regen::share
