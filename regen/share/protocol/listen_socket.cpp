#include "regen/share/protocol/listen_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "regen/base/text.h"
#include "regen/share/protocol/address.h"

namespace regen::share {
namespace {

constexpr int kBacklog = 1024;

Error listen_error(const std::string& path, const std::string& what) {
  return bad_input("cannot serve at " + in_quotes(path) + ": " + what);
}

Error system_error(const std::string& path, const char* call) {
  return listen_error(path, std::string(call) + ": " + std::strerror(errno));
}

Status make_folder(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  if (folder.empty() || ::mkdir(folder.c_str(), 0700) == 0) return {};
  struct stat facts {};
  if (::stat(folder.c_str(), &facts) != 0) return system_error(path, "making its folder");
  // In a folder of another user, that user could put another socket in place of ours.
  const bool safe = facts.st_uid == ::getuid() || facts.st_uid == 0;
  if (!safe || !S_ISDIR(facts.st_mode)) {
    return listen_error(path, in_quotes(folder.string()) + " is not a folder of this user");
  }
  return {};
}

// The kernel releases the lock when its process ends, even if children have copies of the file.
Result<FileLock> lock(const std::string& path, const ListenSocket::Server& server) {
  const std::string name = path + ".lock";
  auto taken = FileLock::take(name);
  if (taken.ok()) return taken;
  if (taken.error().code != ErrorCode::kLimit) return listen_error(path, taken.error().message);
  const pid_t owner = FileLock::owner(name);
  return listen_error(path, server.name + " serves there already (process " +
                                (owner > 0 ? std::to_string(owner) : "of another container") +
                                "), expected " + server.expected);
}

Status remove_stale(const std::string& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return {};
  if (!S_ISSOCK(facts.st_mode)) {
    return listen_error(path, "there is a file that is no socket, expected none or a socket");
  }
  return ::unlink(path.c_str()) == 0 ? Status() : system_error(path, "removing the old socket");
}

// With the permissions from the start: no client can connect before they are set.
Result<Descriptor> listen_at(const std::string& path, mode_t mode, int type) {
  REGEN_ASSIGN(const sockaddr_un address, socket_address(path));
  Descriptor listener(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return system_error(path, "socket");
  const mode_t before = ::umask(static_cast<mode_t>(0777 & ~mode));
  const int bound =
      ::bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::umask(before);
  if (bound != 0) return system_error(path, "bind");
  if (::listen(listener.number(), kBacklog) == 0) return listener;
  const Error error = system_error(path, "listen");
  ::unlink(path.c_str());
  return error;
}

}  // namespace

Result<ListenSocket> ListenSocket::open(const std::string& path, mode_t mode,
                                        const Server& server) {
  REGEN_TRY(socket_address(path));
  REGEN_TRY(make_folder(path));
  ListenSocket listen_socket;
  REGEN_ASSIGN(listen_socket.lock_, lock(path, server));
  REGEN_TRY(remove_stale(path));
  REGEN_ASSIGN(listen_socket.listener_, listen_at(path, mode, server.type));
  listen_socket.path_ = path;
  return listen_socket;
}

ListenSocket::~ListenSocket() {
  if (listener_.valid()) ::unlink(path_.c_str());
}

}  // namespace regen::share
