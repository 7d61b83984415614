#include "regen/share/daemon/daemon_loop.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <system_error>
#include <utility>

#include "regen/base/text.h"
#include "regen/share/scheduler/job_table.h"

namespace regen::share {
namespace {

// The kernel walks at most 2048 links of a robust list when a thread ends.
constexpr std::size_t kMostConnections = 2000;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr std::chrono::microseconds kFirstLook{200};
constexpr std::chrono::microseconds kLongestLook{250'000};
constexpr std::int64_t kAcceptParts = 4;
// Reports for the page, and the part of the time that they may take: one in so many.
constexpr Nanoseconds kPublishPause = 1'000'000'000;
constexpr Nanoseconds kPublishParts = 200;
// So that connections that wait for the same debt do not all come back at one moment.
constexpr Nanoseconds kPlaceInLine = 20'000;
// Before a stranger that says nothing gives its place to another one, as a part of the patience with it.
constexpr Nanoseconds kStaleParts = 10;

}  // namespace

Daemon::Daemon(const DaemonOptions& options, const ListenSocket& listen_socket, UseFiles use)
    : options_(options),
      use_(std::move(use)),
      scheduler_(options.devices, options.turn,
                 {.holder = options.holder_patience, .newcomer = options.admission}),
      acceptor_(loop_),
      signals_(loop_, SIGINT, SIGTERM),
      turns_(loop_),
      pause_(loop_),
      absence_(loop_),
      accept_pause_(loop_),
      files_pause_(loop_),
      publish_pause_(loop_) {
  options_.max_connections = std::min(options_.max_connections, kMostConnections);
  Descriptor listener = Descriptor::copy_of(listen_socket.listener());
  if (!listener.valid()) throw std::system_error(errno, std::generic_category(), "listen socket");
  acceptor_.assign(asio::local::stream_protocol(), listener.number());
  listener.release();
}

// The next daemon looks at the files of the jobs that live.
Daemon::~Daemon() {
  keep_use_files();
}

void Daemon::keep_use_files() {
  for (auto& [connection, client] : clients_) client.use.keep();
  for (auto& [identity, absent] : absent_) absent.use.keep();
}

void Daemon::run() {
  loop_.run();
}

void Daemon::poll() {
  loop_.restart();
  loop_.poll();
}

Status Daemon::begin() {
  signals_.async_wait([this](asio::error_code failed, int) {
    if (!failed) stop();
  });
  settling_ = options_.settle > 0;
  scheduler_.set_closed(true, clock_now());
  REGEN_TRY(wait_for_former_holders());
  pause_.expires_after(std::chrono::nanoseconds(options_.settle));
  pause_.async_wait([this](asio::error_code cancelled) {
    if (!cancelled) end_settling();
  });
  REGEN_TRY(expect_former_jobs());
  accept();
  if (publish_) publish();
  return {};
}

Status Daemon::wait_for_former_holders() {
  for (std::size_t device = 0; device < options_.devices.size(); ++device) {
    REGEN_ASSIGN(const UseNumber last, use_.last_holder(device));
    FormerHolder holder{.since = clock_now()};
    REGEN_ASSIGN(holder.use, use_.former(last));
    holder.use.keep();  // a job that is expected back may have it, too
    closed_.emplace(device, std::move(holder));
  }
  return {};
}

Status Daemon::expect_former_jobs() {
  std::vector<UseNumber> needed;
  REGEN_ASSIGN(const auto entries, read_job_table(options_.socket + ".jobs"));
  for (const JobTableEntry& entry : entries) {
    needed.push_back(entry.use_file);
    REGEN_TRY(expect(entry));
  }
  use_.remove_all_but(needed);
  look_after_absent();
  return {};
}

// Whether it lives follows from the number of its process, or, where that is one of another container, from the lock that it holds. A job
// of which nothing is known is waited for.
Status Daemon::expect(const JobTableEntry& entry) {
  const auto job = scheduler_.expect(entry, clock_now());
  if (!job.ok()) return {};  // another device, or less memory, than the former daemon had
  log(label(*job) + " expected back");
  Absent absent{.job = *job};
  REGEN_ASSIGN(absent.use, use_.former(entry.use_file));
  if (process_lives(entry).value_or(false)) {
    Descriptor process = process_descriptor(entry.process);
    // The number may have been given to another process before it was opened.
    if (!process_lives(entry).value_or(false)) process = Descriptor();
    absent.process = when_ended(std::move(process),
                                [this, identity = entry.identity] { forget_absent(identity); });
  }
  if (!absent.process.known() && !absent.use.lives()) {
    absent.given_up_at = clock_now() + options_.absence;
  }
  absent_[entry.identity] = std::move(absent);
  return {};
}

void Daemon::forget_absent(const std::string& identity) {
  const auto gone = absent_.extract(identity);
  if (gone.empty()) return;
  log(label(gone.mapped().job) + " has ended");
  scheduler_.remove(gone.mapped().job, clock_now());
  carry_out_orders();
}

// Locks make no events.
void Daemon::look_after_absent() {
  std::vector<std::string> ended;
  for (const auto& [identity, absent] : absent_) {
    if (absent.process.known()) continue;
    const bool waited = clock_now() >= absent.given_up_at;
    if (absent.given_up_at == kNever ? !absent.use.lives() : waited) ended.push_back(identity);
  }
  for (const std::string& identity : ended) forget_absent(identity);
  if (absent_.empty() || stopping_) return;
  absence_.expires_after(kLongestLook);
  absence_.async_wait([this](asio::error_code cancelled) {
    if (!cancelled) look_after_absent();
  });
}

ProcessEnd Daemon::when_ended(Descriptor process, std::function<void()> then) {
  return ProcessEnd(loop_, std::move(process), std::move(then));
}

// The pages are cleared first: a job that holds a device stops at once and looks for another
// daemon.
void Daemon::stop() {
  stopping_ = true;
  for (auto& [connection, client] : clients_) client.page.set_go(false);
  keep_use_files();
  log("stopping with " + format_count(clients_.size(), "job"));
  absent_.clear();
  asio::error_code ignored;
  acceptor_.close(ignored);
  turns_.cancel();
  pause_.cancel();
  absence_.cancel();
  accept_pause_.cancel();
  files_pause_.cancel();
  publish_pause_.cancel();
  for (const ConnectionPointer& connection : std::set(connections_)) connection->close();
}

// Turns come first: where a report takes long, because there are many jobs, it is made less often.
void Daemon::publish() {
  const Nanoseconds began = time_used();
  publish_(status());
  const Nanoseconds pause = std::max(kPublishPause, kPublishParts * (time_used() - began));
  publish_pause_.expires_after(std::chrono::nanoseconds(pause));
  publish_pause_.async_wait([this](asio::error_code cancelled) {
    if (!cancelled && !stopping_) publish();
  });
}

void Daemon::end_settling() {
  settling_ = false;
  for (const Newcomer& newcomer : std::exchange(newcomers_, {})) {
    if (const ConnectionPointer connection = newcomer.connection.lock()) {
      register_job(*connection, newcomer.spec);
    }
  }
  opened_ = true;
  open_devices(kFirstLook);
}

// A device is closed until the former holder, which left or lost its daemon in the middle of a quantum, has
// ended that quantum.
void Daemon::open_devices(std::chrono::microseconds again_after) {
  for (std::size_t device = 0; device < options_.devices.size(); ++device) {
    if (!closed_.contains(device) || still_used(device)) continue;
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

void Daemon::close_device(std::size_t device, FormerHolder holder) {
  closed_.insert_or_assign(device, std::move(holder));
  scheduler_.set_closed(device, true, clock_now());
  if (!opened_) return;
  pause_.expires_after(kFirstLook);
  pause_.async_wait([this](asio::error_code cancelled) {
    if (!cancelled) open_devices(2 * kFirstLook);
  });
}

// Says so, and with kill_hung ends the process, as for a holder that does not give way.
bool Daemon::still_used(std::size_t device) {
  FormerHolder& holder = closed_.at(device);
  if (!holder.use.uses(device)) return false;
  if (clock_now() - holder.since < options_.holder_patience * (holder.hung + 1)) return true;
  const int signal = ++holder.hung == 1 ? SIGTERM : SIGKILL;
  const bool kill = options_.kill_hung && holder.process.valid();
  log("device " + in_quotes(options_.devices[device].name) + " is still in use by process " +
      std::to_string(holder.number) + ", which is no job any more" +
      (kill ? signal == SIGTERM ? ", asked to end" : ", killed" : ""));
  if (kill) signal_process(holder.process, signal);
  return true;
}

void Daemon::accept() {
  acceptor_.async_accept([this](asio::error_code failed, Connection::Socket socket) {
    if (stopping_) return;
    // Out of descriptors, most likely: some will be closed, and asking at once would spin.
    if (failed) return accept_after(std::chrono::nanoseconds(kAcceptPause).count());
    const Nanoseconds began = time_used();
    admit_connection(std::move(socket));
    const Nanoseconds now = clock_now();
    accepts_.spend(time_used() - began, kAcceptParts, now);
    accept_after(accepts_.debt(now));
  });
}

void Daemon::accept_after(Nanoseconds pause) {
  if (pause <= 0) return accept();
  accept_pause_.expires_after(std::chrono::nanoseconds(pause));
  accept_pause_.async_wait([this](asio::error_code cancelled) {
    if (!cancelled && !stopping_) accept();
  });
}

// A new connection waits in the line of those whose requests its user has not paid for.
void Daemon::admit_connection(Connection::Socket socket) {
  const Nanoseconds now = clock_now();
  const auto connection = std::make_shared<Connection>(std::move(socket), *this, options_.patience);
  const std::int64_t user = connection->peer().user;
  const bool full = connections_.size() >= options_.max_connections;
  const ConnectionPointer dropped = full ? to_drop_for(*connection) : nullptr;
  connections_.insert(connection);  // from now on it is closed as the others are
  if (full) {
    (dropped ? dropped : connection)
        ->refuse(limit_reached("the daemon has " + std::to_string(options_.max_connections) +
                               " connections, expected no more"));
    if (dropped) dropped->close();
  }
  if (connection->over()) return connection->start();
  if (const Nanoseconds debt = expenses_.debt(user, now); debt > 0) {
    connection->pause(debt);
    expenses_.spend(user, kPlaceInLine, now);
  }
  connection->start();
}

bool Daemon::is_stale(const Connection& connection) const {
  return clock_now() - connection.heard_at() > options_.patience / kStaleParts;
}

// A connection without a job that gives its place to a newcomer: of the user with the most connections, there of the process with the
// most, the one that has been silent longest. None where the newcomer has no fewer than that one, and none has been silent for long.
Daemon::ConnectionPointer Daemon::to_drop_for(const Connection& newcomer) const {
  using Key = std::pair<std::int64_t, std::int64_t>;  // user and process
  std::map<std::int64_t, std::size_t> of_user;
  std::map<Key, std::size_t> of_process;
  const auto key = [](const Connection& c) { return Key(c.peer().user, c.peer().process); };
  for (const ConnectionPointer& connection : connections_) {
    ++of_user[connection->peer().user];
    ++of_process[key(*connection)];
  }
  const auto weight = [&](const Connection& c) {
    return std::pair(of_user[c.peer().user], of_process[key(c)]);
  };
  ConnectionPointer found;
  for (const ConnectionPointer& connection : connections_) {
    if (connection->registered() || connection->over()) continue;
    if (found && std::pair(weight(*found), -found->heard_at()) >=
                     std::pair(weight(*connection), -connection->heard_at())) {
      continue;
    }
    found = connection;
  }
  const auto others = [&] {
    auto [user, process] = weight(newcomer);
    return std::pair(user + 1, process + 1);
  };
  const bool same_user = found && found->peer().user == newcomer.peer().user;
  if (!found) return nullptr;
  const bool greedier =
      same_user ? weight(*found).second > others().second : weight(*found).first > others().first;
  return greedier || is_stale(*found) ? found : nullptr;
}

Nanoseconds Daemon::clock_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Other processes on the machine cost this one's clients nothing.
Nanoseconds Daemon::time_used() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return used.tv_sec * 1'000'000'000 + used.tv_nsec;
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
  for (const auto& [device, holder] : closed_) status.devices[device].closed = true;
  return status;
}

}  // namespace regen::share
