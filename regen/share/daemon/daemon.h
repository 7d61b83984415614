// `regen share serve`: one event loop between the socket, the scheduler and the clients' words.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/scheduler/scheduler.h"

namespace regen::share {

struct DaemonOptions {
  std::string socket;
  unsigned mode = 0600;  // of the socket file
  std::vector<DeviceSpec> devices;
  Nanoseconds turn = 100'000'000;
  // After the start nothing is granted and nobody new admitted for so long: those who lost the
  // daemon before come first.
  Nanoseconds settle = 300'000'000;
  Nanoseconds admission = 300'000'000'000;  // how long a newcomer waits for memory
  // With a holder that was asked to give way. At its end that is logged, and with kill_hung the
  // process is asked to end, and killed when the same time has passed again.
  Nanoseconds holder_patience = 10'000'000'000;
  bool kill_hung = false;
  Nanoseconds patience = 10'000'000'000;  // with half messages and silent strangers
  std::size_t max_connections = 1024;
  std::function<void(const std::string&)> log = {};  // one line for each event, without its end
};

// Serves until SIGTERM or SIGINT; `ready` is called once clients can connect.
Status serve(const DaemonOptions& options, const std::function<void()>& ready);

}  // namespace regen::share
