#include "regen/share/daemon.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <utility>

#include "regen/base/json_fields.h"
#include "regen/base/text.h"
#include "regen/share/connection.h"
#include "regen/share/device_use.h"
#include "regen/share/door.h"
#include "regen/share/page.h"
#include "regen/share/prometheus.h"
#include "regen/share/roster.h"

namespace regen::share {
namespace {

// The kernel walks at most 2048 links of a robust list when a thread ends.
constexpr std::size_t kMostConnections = 2000;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr auto kFirstLook = std::chrono::milliseconds(5);
constexpr auto kLongestLook = std::chrono::milliseconds(250);

Nanoseconds clock_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<JobSpec> read_spec(const Message& message) {
  return job_from_json(JsonCursor(message.body, "message body"));
}

// A whole number of bytes in a message.
Result<Bytes> read_bytes(const Message& message, const char* key) {
  const JsonCursor body(message.body, "message body");
  REGEN_ASSIGN(const JsonCursor field, required_field(body, key));
  return field.whole(0, kMaxBytes);
}

// The end of the process as something to wait for; a connection alone may be kept open by children.
Descriptor process_descriptor(std::int64_t process) {
  return Descriptor(process > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, process, 0)) : -1);
}

class Daemon : public Connection::Listener {
 public:
  Daemon(const DaemonOptions& options, const Door& door, DeviceUseFile use);

  void run();

  void on_message(Connection& connection, const Message& message) override;
  std::string on_metrics() override { return prometheus_text(to_json(status())); }
  void on_refused() override { ++refused_; }
  void on_closed(Connection& connection) override;

 private:
  using ConnectionPointer = std::shared_ptr<Connection>;
  using ProcessEnd = std::unique_ptr<asio::posix::stream_descriptor>;  // null when unknown
  // A registered job and where it is.
  struct Client {
    JobId job;
    ServerPage page;
    bool admitted = false;
    int hung = 0;  // how often patience with it ended
    ProcessEnd process = {};

    void set_word(Order::Kind kind) {
      using enum Order::Kind;
      if (kind == kGrant || kind == kGiveWay || kind == kGoOn) page.set_go(kind != kGiveWay);
    }
  };
  // A job of the former daemon that has not come back.
  struct Absent {
    JobId job;
    ProcessEnd process;
  };
  struct Newcomer {
    std::weak_ptr<Connection> connection;
    JobSpec spec;
  };

  ProcessEnd when_ended(std::int64_t process, std::function<void()> then);

  void accept();
  void admit_connection(Connection::Socket socket);
  void stop();
  void end_settling();
  void open_devices(std::chrono::milliseconds again_after);
  void expect_former_jobs();

  void on_register(Connection& connection, const Message& message);
  void register_job(Connection& connection, const JobSpec& spec);
  void forget(Connection& connection);
  Status on_request(Client& client, const Message& message);
  Status answer(Connection& connection, const Message& message);
  Status change_job(const Message& message);
  void keep_roster();
  void carry_out_orders();
  void show_who_waits();
  void carry_out(const Order& order, Connection& connection, Client& client);
  void welcome(Connection& connection, Client& client);
  void on_hung(Client& client);
  void set_timer();
  DaemonStatus status() const;
  // "job 'a' (process 7)", for the log.
  std::string who(JobId job) const;
  void log(const std::string& line) const {
    if (options_.log) options_.log(line);
  }

  DaemonOptions options_;
  DeviceUseFile use_;
  Scheduler scheduler_;
  asio::io_context loop_;
  asio::local::stream_protocol::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer turns_;
  asio::steady_timer pause_;
  std::set<std::size_t> closed_;  // devices that a former holder may still use
  std::set<ConnectionPointer> connections_;
  std::map<const Connection*, Client> clients_;
  std::map<JobId, Connection*> connection_of_;
  std::map<std::string, Absent> absent_;  // by identity
  std::vector<Newcomer> newcomers_;       // who wait for the end of settling
  bool roster_changed_ = false;
  bool settling_ = false;
  bool stopping_ = false;
  Nanoseconds started_ = clock_now();
  std::int64_t refused_ = 0;
};

Daemon::Daemon(const DaemonOptions& options, const Door& door, DeviceUseFile use)
    : options_(options),
      use_(std::move(use)),
      scheduler_(options.devices, options.turn,
                 {.holder = options.holder_patience, .newcomer = options.admission}),
      acceptor_(loop_, asio::local::stream_protocol(), ::dup(door.listener())),
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
  for (const RosterEntry& entry : read_roster(options_.socket + ".jobs")) {
    const auto job = scheduler_.expect(entry, clock_now());
    if (!job.ok()) continue;  // another device, or less memory, than the former daemon had
    log(who(*job) + " expected back");
    absent_[entry.identity] = {*job, when_ended(entry.process, [this, identity = entry.identity] {
                                 const auto gone = absent_.extract(identity);
                                 if (gone.empty()) return;
                                 log(who(gone.mapped().job) + " has ended");
                                 scheduler_.remove(gone.mapped().job, clock_now());
                                 carry_out_orders();
                               })};
  }
}

Daemon::ProcessEnd Daemon::when_ended(std::int64_t process, std::function<void()> then) {
  Descriptor file = process_descriptor(process);
  if (!file.valid()) return nullptr;
  auto end = std::make_unique<asio::posix::stream_descriptor>(loop_);
  asio::error_code failed;
  end->assign(file.number(), failed);
  if (failed) return nullptr;
  file.release();
  end->async_wait(asio::posix::stream_descriptor::wait_read,
                  [then = std::move(then)](asio::error_code cancelled) {
                    if (!cancelled) then();
                  });
  return end;
}

// The words go first: whoever holds a device stops at once and looks for another daemon.
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

// A device is nobody's until the former holder, who lost its daemon in the middle of a window, has
// ended that window.
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

void Daemon::on_message(Connection& connection, const Message& message) {
  const auto client = clients_.find(&connection);
  Status done;
  if (message.type == MessageType::kRegister) {
    on_register(connection, message);
  } else if (message.type == MessageType::kCheck || message.type == MessageType::kStatus ||
             message.type == MessageType::kChange) {
    done = answer(connection, message);
  } else if (client == clients_.end() || !client->second.admitted) {
    done = bad_input("message " + std::to_string(static_cast<int>(message.type)) +
                     " of a connection without a job, expected register first");
  } else {
    done = on_request(client->second, message);
  }
  if (!done.ok()) connection.refuse(done.error());
  carry_out_orders();
}

void Daemon::on_register(Connection& connection, const Message& message) {
  if (clients_.contains(&connection)) {
    return connection.refuse(bad_input("second register on one connection, expected one"));
  }
  const auto spec = read_spec(message);
  if (!spec.ok()) return connection.refuse(spec.error());
  if (settling_ && !spec->again) {
    newcomers_.push_back({connection.weak_from_this(), *spec});
    return connection.set_registered();  // it waits for us
  }
  register_job(connection, *spec);
}

void Daemon::register_job(Connection& connection, const JobSpec& spec) {
  if (clients_.contains(&connection)) return;  // it asked twice while we settled
  auto page = ServerPage::create();
  if (!page.ok()) return connection.refuse(page.error());
  const auto job = scheduler_.add(spec, connection.process(), clock_now());
  if (job.ok()) absent_.erase(spec.identity);
  if (!job.ok()) {
    log("refused: " + job.error().message);
    return connection.refuse(job.error());
  }
  Client& client =
      clients_.emplace(&connection, Client{*job, std::move(page).value()}).first->second;
  connection_of_.emplace(*job, &connection);
  connection.set_registered();
  client.process = when_ended(connection.process(), [weak = connection.weak_from_this()] {
    if (const ConnectionPointer gone = weak.lock()) gone->close();
  });
  if (!scheduler_.admitted(*job)) log(who(*job) + " waits for memory");
}

Status Daemon::on_request(Client& client, const Message& message) {
  const Nanoseconds now = clock_now();
  const JsonCursor body(message.body, "message body");
  switch (message.type) {
    case MessageType::kAcquire:
      scheduler_.want(client.job, now);
      return {};
    case MessageType::kYield:
      // It gives the device back by this message; a new grant, if any, comes after it.
      client.page.set_go(false);
      return scheduler_.yield(client.job, now);
    case MessageType::kIdle: {
      std::optional<Bytes> left;
      if (has_field(body, "left_bytes")) {
        REGEN_ASSIGN(left, read_bytes(message, "left_bytes"));
      }
      client.page.set_go(false);
      scheduler_.rest(client.job, left, now);
      return {};
    }
    case MessageType::kUpdate: {
      REGEN_ASSIGN(const Curve curve, curve_from_json(body));
      return scheduler_.update(client.job, curve, now);
    }
    case MessageType::kConfirm: {
      REGEN_ASSIGN(const Bytes used, read_bytes(message, "used_bytes"));
      REGEN_ASSIGN(const std::int64_t generation, read_bytes(message, "generation"));
      scheduler_.confirm(client.job, static_cast<std::uint32_t>(generation), used, now);
      return {};
    }
    default: {
      REGEN_ASSIGN(const Bytes left, read_bytes(message, "left_bytes"));
      return scheduler_.made_room(client.job, left, now);
    }
  }
}

Status Daemon::answer(Connection& connection, const Message& message) {
  if (message.type == MessageType::kStatus) {
    connection.send({MessageType::kReport, to_json(status())});
    return {};
  }
  if (message.type == MessageType::kChange) {
    REGEN_TRY(change_job(message));
    connection.send({MessageType::kChanged, Json::object()});
    return {};
  }
  REGEN_ASSIGN(const JobSpec spec, read_spec(message));
  REGEN_TRY(scheduler_.check(spec));
  connection.send({MessageType::kFits, Json::object()});
  return {};
}

Status Daemon::change_job(const Message& message) {
  const JsonCursor body(message.body, "message body");
  REGEN_ASSIGN(const JsonCursor name_field, required_field(body, "job"));
  REGEN_ASSIGN(const std::string name, name_field.string());
  REGEN_ASSIGN(const JobChange change, change_from_json(body));
  REGEN_TRY(scheduler_.change(name, change, clock_now()));
  log("job " + in_quotes(name) + " changed: " + on_one_line(message.body.dump(), 200));
  return {};
}

void Daemon::on_closed(Connection& connection) {
  const auto found = clients_.find(&connection);
  if (found != clients_.end()) {
    log(who(found->second.job) + " left");
    forget(connection);
    roster_changed_ = true;
    if (!stopping_) {
      carry_out_orders();
      keep_roster();
    }
  }
  connections_.erase(connection.shared_from_this());
}

void Daemon::forget(Connection& connection) {
  const auto found = clients_.find(&connection);
  const JobId job = found->second.job;
  connection_of_.erase(job);
  clients_.erase(found);
  scheduler_.remove(job, clock_now());
}

void Daemon::keep_roster() {
  if (std::exchange(roster_changed_, false)) {
    write_roster(options_.socket + ".jobs", scheduler_.roster());
  }
}

// Sending may close a connection, which gives new orders; the loop takes those too. Words go first:
// whoever is told of its turn finds out at once whether somebody waits behind it.
void Daemon::carry_out_orders() {
  for (auto orders = scheduler_.take_orders(); !orders.empty(); orders = scheduler_.take_orders()) {
    // Before anybody acts on it.
    for (const Order& order : orders) {
      roster_changed_ |= order.kind == Order::Kind::kLimit || order.kind == Order::Kind::kAdmit;
    }
    keep_roster();
    for (const Order& order : orders) {
      const auto found = connection_of_.find(order.job);
      if (found == connection_of_.end()) continue;
      clients_.at(found->second).set_word(order.kind);
    }
    show_who_waits();
    for (const Order& order : orders) {
      const auto found = connection_of_.find(order.job);
      if (found == connection_of_.end()) continue;
      carry_out(order, *found->second, clients_.at(found->second));
    }
  }
  show_who_waits();
  set_timer();
}

void Daemon::show_who_waits() {
  for (const auto& [job, wanted] : scheduler_.holders()) {
    const auto found = connection_of_.find(job);
    if (found != connection_of_.end()) clients_.at(found->second).page.set_wanted(wanted);
  }
}

void Daemon::carry_out(const Order& order, Connection& connection, Client& client) {
  using enum Order::Kind;
  switch (order.kind) {
    case kGrant:
      return connection.send({MessageType::kGranted});
    case kGiveWay:
    case kGoOn:
      client.hung = 0;
      return;
    case kHung:
      return on_hung(client);
    case kLimit:
      client.page.set_limit(order.limit);
      // Who runs looks at its page; the message is for those who sleep.
      if (client.admitted && !connection.backed_up()) connection.send({MessageType::kLimit});
      return;
    case kMakeRoom:
      return connection.send({MessageType::kMakeRoom, {{"depth", to_string(order.depth)}}});
    case kAdmit:
      return welcome(connection, client);
    case kExpire: {
      const Error error = scheduler_.expiry(client.job, clock_now());
      log("refused: " + error.message);
      forget(connection);
      return connection.refuse(error);
    }
    case kUpdated:
      return connection.send({MessageType::kUpdated});
  }
}

void Daemon::welcome(Connection& connection, Client& client) {
  client.admitted = true;
  log(who(client.job) + " admitted");
  std::vector<Descriptor> files;
  files.push_back(client.page.take_descriptor());
  files.push_back(use_.share());
  if (!files.back().valid()) files.pop_back();
  connection.send({MessageType::kRegistered,
                   {{"job", client.job.index()},
                    {"go", client.page.go_value()},
                    {"device", scheduler_.device_index(client.job)}}},
                  std::move(files));
}

// Only the end of a process ends its work on a device, so that nothing less would be safe.
void Daemon::on_hung(Client& client) {
  const int signal = ++client.hung == 1 ? SIGTERM : SIGKILL;
  const bool kill = options_.kill_hung && client.process != nullptr;
  log(who(client.job) + " has not given way for " +
      format_exact(to_seconds(options_.holder_patience * client.hung)) + " s" +
      (kill ? signal == SIGTERM ? ", asked to end" : ", killed" : ""));
  if (kill) ::syscall(SYS_pidfd_send_signal, client.process->native_handle(), signal, nullptr, 0);
}

std::string Daemon::who(JobId job) const {
  return "job " + in_quotes(scheduler_.spec(job).name) + " (process " +
         std::to_string(scheduler_.process(job)) + ")";
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

}  // namespace

Status serve(const DaemonOptions& options, const std::function<void()>& ready) {
  REGEN_TRY(check_options(options));
  REGEN_ASSIGN(const Door door, Door::open(options.socket, options.mode));
  REGEN_ASSIGN(DeviceUseFile use, DeviceUseFile::open(options.socket + ".use", options.mode));
  raise_descriptor_limit();
  Daemon daemon(options, door, std::move(use));
  ready();
  daemon.run();
  return {};
}

}  // namespace regen::share
