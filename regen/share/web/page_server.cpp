#include "regen/share/web/page_server.h"

#include <sys/socket.h>

#include <asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <system_error>
#include <utility>

#include "regen/base/text.h"
#include "regen/share/page_template.h"
#include "regen/share/report/prometheus.h"
#include "regen/share/web/page_access.h"

namespace regen::share {
namespace {

constexpr auto kAcceptPause = std::chrono::milliseconds(100);
// Strangers may take one in so many parts of the time of one core.
constexpr std::int64_t kAcceptParts = 4;

Nanoseconds clock_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Nanoseconds thread_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return used.tv_sec * 1'000'000'000 + used.tv_nsec;
}

// What the page says about itself, where a browser cannot overlook it, and what only a field can say.
std::string fields_for(const std::string& page) {
  constexpr std::string_view kStart = "Content-Security-Policy\" content=\"";
  const std::size_t begin = page.find(kStart) + kStart.size();
  const std::string policy = page.substr(begin, page.find('"', begin) - begin);
  return "Content-Security-Policy: " + policy +
         "; frame-ancestors 'none'\r\n"
         "Cache-Control: no-store\r\n"
         "Referrer-Policy: no-referrer\r\n"
         "X-Content-Type-Options: nosniff\r\n"
         "X-Frame-Options: DENY\r\n"
         "Cross-Origin-Opener-Policy: same-origin\r\n"
         "Cross-Origin-Resource-Policy: same-origin\r\n";
}

std::shared_ptr<const std::string> text_of(const Json& json) {
  return std::make_shared<const std::string>(
      json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

Result<std::unique_ptr<PageServer>> PageServer::start(const PageAddress& address,
                                                      const HttpPatience& patience) {
  REGEN_ASSIGN(PageToken token, PageToken::make());
  REGEN_ASSIGN(PageListener listener, PageListener::open(address));
  try {
    return std::unique_ptr<PageServer>(
        new PageServer(std::move(listener), std::move(token), patience));
  } catch (const std::system_error& error) {
    return limit_reached("cannot serve the page at " + in_quotes(to_string(address)) + ": " +
                         on_one_line(error.what(), 200));
  }
}

PageServer::PageServer(PageListener listener, PageToken token, const HttpPatience& patience)
    : listener_(std::move(listener)),
      token_(std::move(token)),
      patience_(patience),
      fields_(fields_for(page_template())),
      page_(std::make_shared<const std::string>(page_template())),
      acceptor_(loop_),
      accept_pause_(loop_),
      owner_{.answer = [this](const HttpRequest& request) { return answer(request); },
             .closed =
                 [this](HttpConnection& gone) {
                   connections_.remove_if([&gone](const auto& one) { return one.get() == &gone; });
                 }} {
  Descriptor copy = Descriptor::copy_of(listener_.number());
  if (!copy.valid()) throw std::system_error(errno, std::generic_category(), "listen socket");
  acceptor_.assign(asio::generic::stream_protocol(listener_.family(), 0), copy.number());
  copy.release();
  accept();
  thread_ = std::thread([this] { loop_.run(); });
}

PageServer::~PageServer() {
  loop_.stop();
  thread_.join();
}

std::string PageServer::url() const {
  const PageAddress& address = listener_.address();
  const std::string query = "/?token=" + token_.text();
  return address.path.empty() ? "http://" + to_string(address) + query
                              : to_string(address) + " http://localhost" + query;
}

void PageServer::publish(DaemonStatus status) {
  std::optional<DaemonStatus> former(std::move(status));
  {
    const std::lock_guard lock(mutex_);
    std::swap(report_, former);
  }
  if (former) return;  // the thread is about to take one
  asio::post(loop_, [this] { take_report(); });
}

void PageServer::take_report() {
  std::optional<DaemonStatus> taken;
  {
    const std::lock_guard lock(mutex_);
    std::swap(report_, taken);
  }
  status_ = std::move(*taken);
  status_text_.reset();
  metrics_text_.reset();
  history_.add(status_);
}

void PageServer::accept() {
  acceptor_.async_accept([this](asio::error_code failed, HttpConnection::Socket socket) {
    // Out of descriptors, most likely: asking at once would spin.
    if (failed) return accept_after(std::chrono::nanoseconds(kAcceptPause).count());
    admit(std::move(socket));
    const Nanoseconds used = thread_time();
    const Nanoseconds now = clock_now();
    allowance_.spend(used - std::exchange(used_, used), kAcceptParts, now);
    accept_after(allowance_.debt(now));
  });
}

void PageServer::accept_after(Nanoseconds pause) {
  if (pause <= 0) return accept();
  accept_pause_.expires_after(std::chrono::nanoseconds(pause));
  accept_pause_.async_wait([this](asio::error_code cancelled) {
    if (!cancelled) accept();
  });
}

void PageServer::admit(HttpConnection::Socket socket) {
  if (connections_.size() >= kMostConnections && !make_place()) return;
  connections_.push_back(
      std::make_shared<HttpConnection>(std::move(socket), owner_, fields_, patience_));
  // It may be gone at its end.
  const auto connection = connections_.back();
  connection->start();
}

bool PageServer::make_place() {
  for (const auto& connection : connections_) {
    if (connection->busy()) continue;
    const auto gone = connection;
    gone->close();
    return true;
  }
  return false;
}

HttpAnswer PageServer::answer(const HttpRequest& request) {
  const HttpStatus access = access_of(request, token_);
  if (access != HttpStatus::kOk) return {access};
  if (request.path == "/") return {.type = "text/html; charset=utf-8", .body = page_};
  if (request.path == "/status.json") return {.type = "application/json", .body = status_text()};
  if (request.path == "/history.json") {
    return {.type = "application/json", .body = history_text(request.after.value_or(-1))};
  }
  if (request.path == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_text()};
  }
  return {HttpStatus::kNotFound};
}

// What several ask for is made once.
PageServer::Text PageServer::status_text() {
  if (!status_text_) status_text_ = text_of(to_json(status_));
  return status_text_;
}

PageServer::Text PageServer::metrics_text() {
  if (!metrics_text_) {
    metrics_text_ = std::make_shared<const std::string>(prometheus_text(to_json(status_)));
  }
  return metrics_text_;
}

PageServer::Text PageServer::history_text(std::int64_t after) {
  const std::int64_t step = history_.last_step();
  HistoryText& last = history_text_;
  if (!last.text || last.after != after || last.step != step) {
    last = {after, step, text_of(history_.json(after))};
  }
  return last.text;
}

}  // namespace regen::share
