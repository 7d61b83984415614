#include "regen/share/daemon/daemon_loop.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "regen/base/text.h"
#include "regen/share/scheduler/job_table.h"

namespace regen::share {
namespace {

// The kernel walks at most 2048 links of a robust list when a thread ends.
constexpr std::size_t kMostConnections = 2000;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr auto kFirstLook = std::chrono::milliseconds(5);
constexpr auto kLongestLook = std::chrono::milliseconds(250);

}  // namespace

Daemon::Daemon(const DaemonOptions& options, const ListenSocket& listen_socket, DeviceUseFile use)
    : options_(options),
      use_(std::move(use)),
      scheduler_(options.devices, options.turn,
                 {.holder = options.holder_patience, .newcomer = options.admission}),
      acceptor_(loop_, asio::local::stream_protocol(),
                Descriptor::copy_of(listen_socket.listener()).release()),
      signals_(loop_, SIGINT, SIGTERM),
      turns_(loop_),
      pause_(loop_) {
  options_.max_connections = std::min(options_.max_connections, kMostConnections);
}

void Daemon::run() {
  signals_.async_wait([this](asio::error_code failed, int) {
    if (!failed) stop();
  });
  settling_ = options_.settle > 0;
  scheduler_.set_closed(true, clock_now());
  for (std::size_t device = 0; device < options_.devices.size(); ++device) closed_.insert(device);
  pause_.expires_after(std::chrono::nanoseconds(options_.settle));
  pause_.async_wait([this](asio::error_code cancelled) {
    if (!cancelled) end_settling();
  });
  expect_former_jobs();
  accept();
  loop_.run();
}

void Daemon::expect_former_jobs() {
  for (const JobTableEntry& entry : read_job_table(options_.socket + ".jobs")) {
    const auto job = scheduler_.expect(entry, clock_now());
    if (!job.ok()) continue;  // another device, or less memory, than the former daemon had
    log(label(*job) + " expected back");
    absent_[entry.identity] = {*job, when_ended(entry.process, [this, identity = entry.identity] {
                                 const auto gone = absent_.extract(identity);
                                 if (gone.empty()) return;
                                 log(label(gone.mapped().job) + " has ended");
                                 scheduler_.remove(gone.mapped().job, clock_now());
                                 carry_out_orders();
                               })};
  }
}

ProcessEnd Daemon::when_ended(std::int64_t process, std::function<void()> then) {
  return ProcessEnd(loop_, process_descriptor(process), std::move(then));
}

// The pages are cleared first: a job that holds a device stops at once and looks for another
// daemon.
void Daemon::stop() {
  stopping_ = true;
  for (auto& [connection, client] : clients_) client.page.set_go(false);
  log("stopping with " + format_count(clients_.size(), "job"));
  absent_.clear();
  asio::error_code ignored;
  acceptor_.close(ignored);
  turns_.cancel();
  pause_.cancel();
  for (const ConnectionPointer& connection : std::set(connections_)) connection->close();
}

void Daemon::end_settling() {
  settling_ = false;
  for (const Newcomer& newcomer : std::exchange(newcomers_, {})) {
    if (const ConnectionPointer connection = newcomer.connection.lock()) {
      register_job(*connection, newcomer.spec);
    }
  }
  open_devices(kFirstLook);
}

// A device is closed until the former holder, which lost its daemon in the middle of a quantum, has
// ended that quantum.
void Daemon::open_devices(std::chrono::milliseconds again_after) {
  for (std::size_t device : std::set(closed_)) {
    if (const auto user = use_.user(device)) {
      if (again_after == kFirstLook) {
        log("device " + in_quotes(options_.devices[device].name) + " is still in use by process " +
            std::to_string(*user));
      }
      continue;
    }
    closed_.erase(device);
    scheduler_.set_closed(device, false, clock_now());
  }
  carry_out_orders();
  if (closed_.empty()) return;
  pause_.expires_after(again_after);
  pause_.async_wait([this, again_after](asio::error_code cancelled) {
    if (!cancelled) open_devices(std::min(2 * again_after, kLongestLook));
  });
}

void Daemon::accept() {
  acceptor_.async_accept([this](asio::error_code failed, Connection::Socket socket) {
    if (stopping_) return;
    if (!failed) {
      admit_connection(std::move(socket));
      return accept();
    }
    // Out of descriptors, most likely: some will be closed, and asking at once would spin.
    auto timer = std::make_shared<asio::steady_timer>(loop_, kAcceptPause);
    timer->async_wait([this, timer](asio::error_code) {
      if (!stopping_) accept();
    });
  });
}

void Daemon::admit_connection(Connection::Socket socket) {
  const auto connection = std::make_shared<Connection>(std::move(socket), *this, options_.patience);
  connections_.insert(connection);
  connection->start();
  if (connections_.size() > options_.max_connections) {
    connection->refuse(limit_reached("the daemon has " + std::to_string(options_.max_connections) +
                                     " connections, expected no more"));
  }
}

Nanoseconds Daemon::clock_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Daemon::set_timer() {
  turns_.cancel();
  const auto next = scheduler_.next_event();
  if (!next || stopping_) return;
  turns_.expires_after(std::chrono::nanoseconds(std::max<Nanoseconds>(0, *next - clock_now())));
  turns_.async_wait([this](asio::error_code cancelled) {
    if (cancelled || stopping_) return;
    scheduler_.advance(clock_now());
    carry_out_orders();
  });
}

DaemonStatus Daemon::status() const {
  const Nanoseconds now = clock_now();
  DaemonStatus status{.process = ::getpid(),
                      .age = now - started_,
                      .connections = static_cast<std::int64_t>(connections_.size()),
                      .refused_messages = refused_,
                      .devices = scheduler_.status(now)};
  for (std::size_t device : closed_) status.devices[device].closed = true;
  return status;
}

}  // namespace regen::share
