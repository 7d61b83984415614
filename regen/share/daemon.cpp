#include "regen/share/daemon.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <utility>

#include "regen/share/connection.h"
#include "regen/share/door.h"
#include "regen/share/page.h"
#include "regen/share/prometheus.h"

namespace regen::share {
namespace {

// The kernel walks at most 2048 links of a robust list when a thread ends.
constexpr std::size_t kMostConnections = 2000;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

Nanoseconds clock_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<JobSpec> read_spec(const Message& message) {
  return job_from_json(JsonCursor(message.body, "message body"));
}

class Daemon : public Connection::Listener {
 public:
  Daemon(const DaemonOptions& options, const Door& door);

  void run();

  void on_message(Connection& connection, const Message& message) override;
  std::string on_metrics() override { return prometheus_text(to_json(status())); }
  void on_refused() override { ++refused_; }
  void on_closed(Connection& connection) override;

 private:
  using ConnectionPointer = std::shared_ptr<Connection>;
  // A registered job and where it is.
  struct Client {
    JobId job;
    ServerPage page;
  };
  struct Newcomer {
    std::weak_ptr<Connection> connection;
    JobSpec spec;
  };

  void accept();
  void admit_connection(Connection::Socket socket);
  void stop();
  void end_settling();

  void on_register(Connection& connection, const Message& message);
  void register_job(Connection& connection, const JobSpec& spec);
  Status on_request(Connection& connection, Client& client, MessageType type);
  Status answer(Connection& connection, const Message& message);
  void carry_out_orders();
  void show_who_waits();
  void set_timer();
  DaemonStatus status() const;

  DaemonOptions options_;
  Scheduler scheduler_;
  asio::io_context loop_;
  asio::local::stream_protocol::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer turns_;
  asio::steady_timer pause_;
  std::set<ConnectionPointer> connections_;
  std::map<const Connection*, Client> clients_;
  std::map<JobId, Connection*> connection_of_;
  std::vector<Newcomer> newcomers_;  // who wait for the end of settling
  bool settling_ = false;
  bool stopping_ = false;
  Nanoseconds started_ = clock_now();
  std::int64_t refused_ = 0;
};

Daemon::Daemon(const DaemonOptions& options, const Door& door)
    : options_(options),
      scheduler_(options.devices, options.turn),
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
  if (options_.settle > 0) {
    settling_ = true;
    scheduler_.set_closed(true, clock_now());
    pause_.expires_after(std::chrono::nanoseconds(options_.settle));
    pause_.async_wait([this](asio::error_code cancelled) {
      if (!cancelled) end_settling();
    });
  }
  accept();
  loop_.run();
}

// The words go first: whoever holds a device stops at once and looks for another daemon.
void Daemon::stop() {
  stopping_ = true;
  for (auto& [connection, client] : clients_) client.page.set_go(false);
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
  scheduler_.set_closed(false, clock_now());
  carry_out_orders();
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
  } else if (message.type == MessageType::kCheck || message.type == MessageType::kStatus) {
    done = answer(connection, message);
  } else if (client == clients_.end()) {
    done = bad_input("message " + std::to_string(static_cast<int>(message.type)) +
                     " of a connection without a job, expected register first");
  } else {
    done = on_request(connection, client->second, message.type);
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
  if (!job.ok()) return connection.refuse(job.error());
  const Message answer{MessageType::kRegistered, {{"job", job->index()}, {"go", page->go_value()}}};
  Descriptor descriptor = page->take_descriptor();
  clients_.emplace(&connection, Client{*job, std::move(page).value()});
  connection_of_.emplace(*job, &connection);
  connection.set_registered();
  connection.send(answer, std::move(descriptor));
}

Status Daemon::on_request(Connection&, Client& client, MessageType type) {
  const Nanoseconds now = clock_now();
  if (type == MessageType::kAcquire) {
    scheduler_.want(client.job, now);
    return {};
  }
  // It gives the device back by this message; a new grant, if any, comes after it.
  client.page.set_go(false);
  if (type == MessageType::kYield) return scheduler_.yield(client.job, now);
  scheduler_.rest(client.job, now);
  return {};
}

Status Daemon::answer(Connection& connection, const Message& message) {
  if (message.type == MessageType::kStatus) {
    connection.send({MessageType::kReport, to_json(status())});
    return {};
  }
  REGEN_ASSIGN(const JobSpec spec, read_spec(message));
  REGEN_TRY(scheduler_.check(spec));
  connection.send({MessageType::kFits, Json::object()});
  return {};
}

void Daemon::on_closed(Connection& connection) {
  const auto found = clients_.find(&connection);
  if (found != clients_.end()) {
    const JobId job = found->second.job;
    connection_of_.erase(job);
    clients_.erase(found);
    scheduler_.remove(job, clock_now());
    if (!stopping_) carry_out_orders();
  }
  connections_.erase(connection.shared_from_this());
}

// Sending may close a connection, which gives new orders; the loop takes those too. Words go first:
// whoever is told of its turn finds out at once whether somebody waits behind it.
void Daemon::carry_out_orders() {
  for (auto orders = scheduler_.take_orders(); !orders.empty(); orders = scheduler_.take_orders()) {
    for (const Order& order : orders) {
      const auto found = connection_of_.find(order.job);
      if (found == connection_of_.end()) continue;
      clients_.at(found->second).page.set_go(order.kind != Order::Kind::kGiveWay);
    }
    show_who_waits();
    for (const Order& order : orders) {
      const auto found = connection_of_.find(order.job);
      if (found == connection_of_.end() || order.kind != Order::Kind::kGrant) continue;
      found->second->send({MessageType::kGranted});
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
  return {.process = ::getpid(),
          .age = now - started_,
          .connections = static_cast<std::int64_t>(connections_.size()),
          .refused_messages = refused_,
          .devices = scheduler_.status(now)};
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
  raise_descriptor_limit();
  Daemon daemon(options, door);
  ready();
  daemon.run();
  return {};
}

}  // namespace regen::share
