// Connected Unix sockets: the process at the other end, and bytes or packets with the descriptors
// that are passed along. The daemon's messages and the frames of shared input both use them.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

inline constexpr std::size_t kMostDescriptors = 4;  // in one call

// The server that is expected at a path, for the error when none listens there.
struct Expected {
  std::string name;         // "daemon"
  std::string remedy = {};  // "a running ...", if the reader can do something about it
};

// ErrorCode::kMissing when no process listens there.
Result<Descriptor> connect_to(const std::string& path, int type, const Expected& peer);

// The process and the user that listened, or connected; all zero where the kernel does not say.
ucred peer_of(int socket);

// Both go on after a signal, and return what the system call returns (and errno with it). A message whose
// descriptors did not all arrive is lost: EMFILE.
ssize_t send_to(int socket, std::string_view bytes, std::span<const int> descriptors, int flags);
ssize_t receive_from(int socket, std::span<char> buffer, std::vector<Descriptor>& descriptors,
                     int flags);

}  // namespace regen::share
