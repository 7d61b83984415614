// Real processes for tests: daemons and clients that can be killed at any moment.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "regen/share/client/client.h"
#include "regen/share/daemon/daemon.h"

namespace regen::share {

// A folder that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

// A child that runs `body` and exits with what it returns; killed, if it still runs, at the end.
class Process {
 public:
  Process() = default;
  explicit Process(const std::function<int()>& body);
  Process(Process&& other) noexcept : id_(other.id_) { other.id_ = 0; }
  Process& operator=(Process&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Process();

  pid_t id() const { return id_; }
  void signal(int number) const;
  // The exit status, or 128 + the signal that ended it.
  int wait();

 private:
  pid_t id_ = 0;
};

// Starts a daemon and returns once clients can connect.
Process start_daemon(const DaemonOptions& options);
DaemonOptions test_daemon(const TemporaryFolder& folder);

// Numbers that all processes of a test see.
struct Board {
  std::atomic<int> stop{0};        // jobs without a last quantum go on until it is set
  std::atomic<int> collisions{0};  // times that the device had more than one user
  std::atomic<int> quanta{0};      // of work done by all processes
  std::atomic<int> reconnections{0};
  std::atomic<int> owner{0};  // process that uses the device
};
// Of a test; lives until the test process ends.
Board& new_board();

// Whether the process may still execute anything of its own. One that was killed closes its socket
// some time before it is a zombie: the kernel's flag says that it is on its way.
bool can_go_on(int process);

// One quantum of work on the pretended device. A quantum of a killed process is no collision.
void use_device(Board& board);

// The report of `regen share status`.
Json report(const std::string& socket);
// Sleeps in small steps until it is true; false after a minute.
bool eventually(const std::function<bool()>& condition);

}  // namespace regen::share
