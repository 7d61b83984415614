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

#include "regen/share/client/device_use.h"
#include "regen/share/daemon/connection.h"
#include "regen/share/daemon/daemon.h"
#include "regen/share/protocol/listen_socket.h"
#include "regen/share/protocol/page.h"
#include "regen/share/protocol/process_end.h"
#include "regen/share/protocol/prometheus.h"

namespace regen::share {

// One thread; everything happens in its event loop.
class Daemon : public Connection::Listener {
 public:
  Daemon(const DaemonOptions& options, const ListenSocket& listen_socket, DeviceUseFile use);

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
  void keep_job_table();
  void carry_out_orders();
  void show_who_waits();
  void carry_out(const Order& order, Connection& connection, Client& client);
  void welcome(Connection& connection, Client& client);
  void on_hung(Client& client);
  void set_timer();
  static Nanoseconds clock_now();
  DaemonStatus status() const;
  // "job 'a' (process 7)", for the log.
  std::string label(JobId job) const;
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
  std::vector<Newcomer> newcomers_;       // wait for the end of settling
  bool job_table_changed_ = false;
  bool carrying_out_ = false;
  bool settling_ = false;
  bool stopping_ = false;
  Nanoseconds started_ = clock_now();
  std::int64_t refused_ = 0;
};

}  // namespace regen::share
