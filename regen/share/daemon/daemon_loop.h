// The daemon behind serve(): an event loop between the socket, the scheduler and the clients'
// pages. daemon_loop.cpp has its life cycle, daemon_requests.cpp the clients' requests and the
// orders to them.
#pragma once

#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "regen/share/daemon/connection.h"
#include "regen/share/daemon/daemon.h"
#include "regen/share/daemon/expenses.h"
#include "regen/share/daemon/use_files.h"
#include "regen/share/protocol/listen_socket.h"
#include "regen/share/protocol/page.h"
#include "regen/share/protocol/process_end.h"
#include "regen/share/report/prometheus.h"

namespace regen::share {

// One thread; everything happens in its event loop.
class Daemon final : public Connection::Listener {
 public:
  // Throws std::system_error where the system is short of descriptors.
  Daemon(const DaemonOptions& options, const ListenSocket& listen_socket, UseFiles use);
  Daemon(const Daemon&) = delete;
  ~Daemon();

  // From now on clients are answered, in run() or poll(). An error where it cannot be known which jobs of the
  // former daemon still use the devices.
  Status begin();
  // Everything until SIGTERM or SIGINT.
  void run();
  // For a caller that goes step by step: what is ready is done, and nothing is waited for.
  void poll();
  // As if it had come in by the listening socket.
  void admit_connection(Connection::Socket socket);
  asio::io_context& loop() { return loop_; }
  DaemonStatus status() const;
  // Before begin(). It is given the status then, and about once a second from then on.
  using Publish = std::function<void(DaemonStatus)>;
  void publish_to(Publish publish) { publish_ = std::move(publish); }

  void on_message(Connection& connection, const Message& message) override;
  std::string on_metrics(Connection& connection) override;
  void on_refused() override { ++refused_; }
  void on_closed(Connection& connection) override;

 private:
  using ConnectionPointer = std::shared_ptr<Connection>;
  // A registered job and where it is.
  struct Client {
    JobId job;
    ServerPage page;
    bool admitted = false;
    int hung = 0;  // how often patience with it ended
    ProcessEnd process = {};
    UseFile use = {};
    Allowance turns = {};

    void set_word(Order::Kind kind) {
      using enum Order::Kind;
      if (kind == kGrant || kind == kGiveWay || kind == kGoOn) page.set_go(kind != kGiveWay);
    }
  };
  // A job of the former daemon that has not come back.
  struct Absent {
    JobId job;
    ProcessEnd process;
    UseFile use = {};
    Nanoseconds given_up_at = kNever;  // where the kernel does not say whether it lives
  };
  // A job that has left, or had another daemon, and is still in its last quantum.
  struct FormerHolder {
    UseFile use;
    std::int64_t number = 0;  // of the process, for people
    Descriptor process = {};
    Nanoseconds since = 0;
    int hung = 0;
  };
  // The report as it is sent. Making it takes long where many jobs are, so that it is made anew only as often as the time allows.
  struct Report {
    std::shared_ptr<const std::string> message = {};
    std::shared_ptr<const std::string> metrics = {};
    Allowance allowance = {};
  };
  struct Newcomer {
    std::weak_ptr<Connection> connection;
    JobSpec spec;
  };

  ProcessEnd when_ended(Descriptor process, std::function<void()> then);

  void accept();
  void accept_after(Nanoseconds pause);
  ConnectionPointer to_drop_for(const Connection& newcomer) const;
  bool is_stale(const Connection& connection) const;
  void stop();
  void publish();
  void end_settling();
  void open_devices(std::chrono::microseconds again_after);
  void close_device(std::size_t device, FormerHolder holder);
  bool still_used(std::size_t device);
  Status wait_for_former_holders();
  Status expect_former_jobs();
  Status expect(const JobTableEntry& entry);
  void look_after_absent();
  void keep_use_files();
  void forget_absent(const std::string& identity);

  void on_register(Connection& connection, const Message& message);
  void register_job(Connection& connection, JobSpec spec);
  Result<JobId> add_job(Connection& connection, const JobSpec& spec, UseNumber file);
  void limit_claims(const Peer& peer, JobSpec& spec) const;
  Status may_register(const Peer& peer, const JobSpec& spec) const;
  UserHolds held_by(std::int64_t user, std::size_t device, std::optional<JobId> but) const;
  void forget(Connection& connection);
  void handle(Connection& connection, const Message& message);
  void charge(Connection& connection, const Message& message, Nanoseconds cost, Nanoseconds now);
  Status on_request(Client& client, const Message& message);
  Status give_back(Client& client);
  Status answer(Connection& connection, const Message& message);
  Status change_job(Connection& connection, const Message& message);
  void refresh_report();
  void keep_job_table();
  void note_holder(std::size_t device, UseNumber number);
  void say_of_files(const Status& written);
  void write_files_later();
  void carry_out_orders();
  void show_who_waits();
  void carry_out(const Order& order, Connection& connection, Client& client);
  void welcome(Connection& connection, Client& client);
  void on_hung(Client& client);
  void set_timer();
  static Nanoseconds clock_now();
  static Nanoseconds time_used();
  // "job 'a' (process 7)", for the log.
  std::string label(JobId job) const;
  void log(const std::string& line) const {
    if (options_.log) options_.log(line);
  }

  DaemonOptions options_;
  UseFiles use_;
  Scheduler scheduler_;
  asio::io_context loop_;
  asio::local::stream_protocol::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer turns_;
  asio::steady_timer pause_;
  asio::steady_timer absence_;
  asio::steady_timer accept_pause_;
  asio::steady_timer files_pause_;
  asio::steady_timer publish_pause_;
  Publish publish_;
  std::map<std::size_t, FormerHolder> closed_;  // devices that a former holder may still use
  std::set<ConnectionPointer> connections_;
  std::map<const Connection*, Client> clients_;
  std::map<JobId, Connection*> connection_of_;
  std::map<std::string, Absent> absent_;  // by identity
  std::vector<Newcomer> newcomers_;       // wait for the end of settling
  bool job_table_changed_ = false;
  bool files_failed_ = false;  // and that was logged
  bool carrying_out_ = false;
  bool settling_ = false;
  bool opened_ = false;  // settling is over: devices open as soon as they are free
  Expenses expenses_;
  Allowance accepts_;
  Allowance all_turns_;
  Report report_;
  bool stopping_ = false;
  Nanoseconds started_ = clock_now();
  std::int64_t refused_ = 0;
};

}  // namespace regen::share
