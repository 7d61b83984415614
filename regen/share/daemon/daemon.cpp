#include "regen/share/daemon/daemon.h"

#include <sys/resource.h>

#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "regen/base/text.h"
#include "regen/share/daemon/daemon_loop.h"
#include "regen/share/web/page_server.h"

namespace regen::share {
namespace {

Status check_options(const DaemonOptions& options) {
  std::set<std::string> names;
  for (const DeviceSpec& device : options.devices) {
    if (names.insert(device.name).second) continue;
    return bad_input("device '" + device.name + "' is given twice, expected different names");
  }
  return options.devices.empty() ? Status(bad_input("no device, expected at least one")) : Status();
}

// Connections are descriptors, and the usual soft limit is lower than ours.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// The loop takes descriptors, and Asio reports by an exception that there are none.
Result<std::unique_ptr<Daemon>> make_daemon(const DaemonOptions& options,
                                            const ListenSocket& listen_socket, UseFiles use) {
  try {
    return std::make_unique<Daemon>(options, listen_socket, std::move(use));
  } catch (const std::system_error& error) {
    return limit_reached("cannot serve at " + in_quotes(options.socket) + ": " +
                         on_one_line(error.what(), 200));
  }
}

}  // namespace

Status serve(const DaemonOptions& options, const std::function<void()>& ready) {
  REGEN_TRY(check_options(options));
  std::unique_ptr<PageServer> page;
  if (options.page) {
    REGEN_ASSIGN(page, PageServer::start(*options.page));
  }
  REGEN_ASSIGN(const ListenSocket listen_socket,
               ListenSocket::open(options.socket, options.mode,
                                  {.name = "a daemon", .expected = "another --socket"}));
  REGEN_ASSIGN(UseFiles use, UseFiles::open(options.socket + ".use.d"));
  raise_descriptor_limit();
  REGEN_ASSIGN(const auto daemon, make_daemon(options, listen_socket, std::move(use)));
  if (page) daemon->publish_to([&](DaemonStatus now) { page->publish(std::move(now)); });
  REGEN_TRY(daemon->begin());
  if (page && options.show_page) options.show_page(page->url());
  ready();
  daemon->run();
  return {};
}

}  // namespace regen::share
