#include "regen/share/protocol/peer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>

#include "regen/share/protocol/process_end.h"
#include "regen/share/protocol/unix_socket.h"

namespace regen::share {
namespace {

// Of Linux 6.5; headers may be older than the kernel.
constexpr int kPeerPidfd = 77;   // SO_PEERPIDFD
constexpr int kPeerGroups = 59;  // SO_PEERGROUPS
constexpr std::size_t kMostGroups = 256;

// The kernel has kept the process itself since it connected; before 6.5 only its number.
Descriptor descriptor_of_peer(int socket, std::int64_t process) {
  int number = -1;
  socklen_t size = sizeof number;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &number, &size) == 0) return Descriptor(number);
  if (errno != ENOPROTOOPT) return {};  // it has ended, or descriptors are short
  return process_descriptor(process);
}

// Why there is no descriptor, from errno.
bool system_is_short() {
  return errno == EMFILE || errno == ENFILE || errno == ENOMEM;
}

std::vector<std::int64_t> groups_of(int socket, gid_t main_group) {
  std::vector<std::int64_t> groups{static_cast<std::int64_t>(main_group)};
  std::vector<gid_t> others(kMostGroups);
  auto size = static_cast<socklen_t>(others.size() * sizeof(gid_t));
  if (::getsockopt(socket, SOL_SOCKET, kPeerGroups, others.data(), &size) != 0) return groups;
  others.resize(size / sizeof(gid_t));
  groups.insert(groups.end(), others.begin(), others.end());
  return groups;
}

}  // namespace

Peer peer_at(int socket) {
  const ucred facts = peer_of(socket);
  Peer peer{.process = facts.pid};
  if (facts.pid == 0 && facts.uid == 0 && facts.gid == 0) {
    // Either not reported, or root of another container: getsockopt says which by its status.
    ucred reported{};
    socklen_t size = sizeof reported;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &reported, &size) != 0) return peer;
  }
  peer.user = facts.uid;
  peer.groups = groups_of(socket, facts.gid);
  errno = 0;
  peer.descriptor = descriptor_of_peer(socket, facts.pid);
  peer.system_was_short = !peer.descriptor.valid() && system_is_short();
  return peer;
}

bool Peer::ended() const {
  pollfd asked{.fd = descriptor.number(), .events = POLLIN, .revents = 0};
  return descriptor.valid() && ::poll(&asked, 1, 0) == 1;
}

// What is read of a number is the process's own if the process lives afterwards.
std::uint64_t Peer::start() const {
  if (!descriptor.valid()) return 0;
  const std::uint64_t found = process_start(process).value_or(0);
  return ended() ? 0 : found;
}

std::optional<std::uint64_t> process_start(std::int64_t process) {
  if (process <= 0) return 0;
  // The process may end while its file is read, which streams would answer with an exception.
  FILE* file = std::fopen(("/proc/" + std::to_string(process) + "/stat").c_str(), "re");
  if (file == nullptr) return errno == ENOENT ? std::optional<std::uint64_t>(0) : std::nullopt;
  char text[1024] = {};
  errno = 0;
  const std::size_t size = std::fread(text, 1, sizeof text - 1, file);
  const bool ended = size == 0 && errno == ESRCH;
  std::fclose(file);
  if (size == 0) return ended ? std::optional<std::uint64_t>(0) : std::nullopt;
  // The second field is the name in brackets, which may hold anything; the start is field 22.
  const std::size_t name_end = std::string_view(text, size).rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  std::istringstream fields(text + name_end + 1);
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  return fields >> start ? std::optional(start) : std::nullopt;
}

std::uint64_t process_namespace() {
  struct stat facts {};
  return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

}  // namespace regen::share
