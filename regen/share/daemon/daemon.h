// `regen share serve`: one event loop between the socket, the scheduler and the clients' pages.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/daemon/rights.h"
#include "regen/share/scheduler/scheduler.h"
#include "regen/share/web/page_address.h"

namespace regen::share {

struct DaemonOptions {
  std::string socket;
  unsigned mode = 0600;  // of the socket file
  std::vector<DeviceSpec> devices;
  Nanoseconds turn = 100'000'000;
  // For this long after the start nothing is granted and no new job is admitted: jobs of the former
  // daemon come first.
  Nanoseconds settle = 300'000'000;
  Nanoseconds admission = 300'000'000'000;  // how long a newcomer waits for memory
  // How long a holder may take to give way. Then it is logged, and with kill_hung the process gets
  // SIGTERM, and SIGKILL when the same time has passed again.
  Nanoseconds holder_patience = 10'000'000'000;
  bool kill_hung = false;
  Nanoseconds patience = 10'000'000'000;  // with half messages and silent strangers
  std::size_t max_connections = 1024;
  // How long the bytes of a job of the former daemon are kept for it where the kernel does not say whether it lives.
  Nanoseconds absence = 60'000'000'000;
  Rights rights = {};
  std::optional<PageAddress> page = {};  // none: no page
  std::function<void(const std::string&)> show_page =
      {};                                            // its URL, with the token, before `ready`
  std::function<void(const std::string&)> log = {};  // one line for each event, without its end
};

// Serves until SIGTERM or SIGINT; `ready` is called once clients can connect.
Status serve(const DaemonOptions& options, const std::function<void()>& ready);

}  // namespace regen::share
