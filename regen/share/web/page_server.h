// The daemon's page for a browser: jobs, turns, bytes and waiting times, now and over the last hour. It has a thread of
// its own, so that a browser, or a stranger, takes none of the time of the daemon's thread: that one leaves a report now
// and then.
//
//   GET /              the page, which asks for the following
//   GET /status.json   the report, as `regen share status --json` prints it, at most a second old
//   GET /history.json  the last hour (History); ?after=STEP: what came after that step
//   GET /metrics       the report as Prometheus text
//
// Each takes the token; without it the answer is 403 and nothing else.
#pragma once

#include <asio/basic_socket_acceptor.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "regen/base/result.h"
#include "regen/share/daemon/expenses.h"
#include "regen/share/report/status.h"
#include "regen/share/web/history.h"
#include "regen/share/web/http_connection.h"
#include "regen/share/web/page_address.h"
#include "regen/share/web/page_listener.h"
#include "regen/share/web/page_token.h"

namespace regen::share {

class PageServer {
 public:
  // When one more comes, the oldest goes that has not brought the token, or has its answer; where there is none, the new
  // one does.
  static constexpr std::size_t kMostConnections = 16;

  // Answers from now on, in a thread of its own.
  static Result<std::unique_ptr<PageServer>> start(const PageAddress& address,
                                                   const HttpPatience& patience = {});
  // Ends all connections.
  ~PageServer();
  PageServer(const PageServer&) = delete;

  // Where the page is, with its token, for people.
  std::string url() const;
  // The report from now on. Waits for nothing but a few moves.
  void publish(DaemonStatus status);

 private:
  using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
  using Text = std::shared_ptr<const std::string>;

  // Throws std::system_error where the system is short of descriptors or threads.
  PageServer(PageListener listener, PageToken token, const HttpPatience& patience);
  void accept();
  void accept_after(Nanoseconds pause);
  void admit(HttpConnection::Socket socket);
  bool make_place();
  void take_report();
  HttpAnswer answer(const HttpRequest& request);
  Text status_text();
  Text metrics_text();
  Text history_text(std::int64_t after);

  const PageListener listener_;
  const PageToken token_;
  const HttpPatience patience_;
  const std::string fields_;  // of every answer that has a body
  const Text page_;
  asio::io_context loop_;
  Acceptor acceptor_;
  asio::steady_timer accept_pause_;
  Allowance allowance_;
  Nanoseconds used_ = 0;  // of the thread's time, when a connection was accepted last
  HttpConnection::Owner owner_;
  std::list<std::shared_ptr<HttpConnection>> connections_;
  DaemonStatus status_;
  History history_;
  // As they were sent last; the report is as it was then.
  Text status_text_;
  Text metrics_text_;
  struct HistoryText {
    std::int64_t after = 0;
    std::int64_t step = 0;
    Text text;
  };
  HistoryText history_text_;

  std::mutex mutex_;                    // of what follows
  std::optional<DaemonStatus> report_;  // that the thread has not taken yet

  std::thread thread_;
};

}  // namespace regen::share
