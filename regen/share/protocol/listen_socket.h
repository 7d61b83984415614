// The socket file of a server (the daemon, the producer of a shared input): one server for each
// path, and only clients that the file's permissions admit.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <string>

#include "regen/base/result.h"
#include "regen/share/protocol/file_lock.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

class ListenSocket {
 public:
  // The words of a refusal.
  struct Server {
    std::string name;      // "a daemon"
    std::string expected;  // what to do where another one serves already
    int type = SOCK_STREAM;
  };

  // Listens at `path`. A socket that a dead server left there is replaced; a path that another one
  // serves, or that is no socket, is refused. The folder is made if it is missing, for this user
  // only. Beside the socket lies PATH.lock: the process that holds its lock is the server.
  static Result<ListenSocket> open(const std::string& path, mode_t mode, const Server& server);
  ListenSocket(ListenSocket&&) noexcept = default;
  ~ListenSocket();

  int listener() const { return listener_.number(); }

 private:
  ListenSocket() = default;

  std::string path_;
  FileLock lock_;
  Descriptor listener_;
};

}  // namespace regen::share
