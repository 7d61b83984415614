#include "regen/share/daemon/connection.h"

#include <poll.h>

#include <asio/buffer.hpp>
#include <asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "regen/share/protocol/unix_socket.h"

namespace regen::share {
namespace {

// A client that does not read its answers is not read from either.
constexpr std::size_t kMostAnswers = 16;
// One connection's messages in one turn of the loop; then the others have theirs.
constexpr int kMostInATurn = 8;
constexpr std::size_t kMostHttpBytes = 8192;
// Before a message is sent again that the kernel had no memory for.
constexpr auto kSendPause = std::chrono::milliseconds(10);
constexpr std::string_view kHttpStart = "GET ";

Nanoseconds time_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Connection::Connection(Socket socket, Listener& listener, Nanoseconds patience)
    : socket_(std::move(socket)),
      listener_(listener),
      patience_(patience),
      timer_(socket_.get_executor()),
      peer_(peer_at(socket_.native_handle())),
      pause_(socket_.get_executor()),
      memory_pause_(socket_.get_executor()),
      heard_at_(time_now()) {}

void Connection::start() {
  asio::error_code failed;
  socket_.non_blocking(true, failed);
  watch();
  read();
}

void Connection::set_registered() {
  registered_ = true;
  watch();
}

void Connection::pause(Nanoseconds time) {
  if (time <= 0 || over()) return;
  paused_ = true;
  watch_for_hang_up();
  pause_.expires_after(std::chrono::nanoseconds(time));
  pause_.async_wait([self = shared_from_this()](asio::error_code cancelled) {
    if (cancelled || self->over()) return;
    self->paused_ = false;
    self->take_messages();
    self->watch();
    self->read();
  });
}

// A client that has gone needs no answer, and gives its place back at once.
void Connection::watch_for_hang_up() {
  socket_.async_wait(Socket::wait_error, [self = shared_from_this()](asio::error_code failed) {
    if (failed || !self->paused_ || self->over()) return;
    pollfd asked{.fd = self->socket_.native_handle(), .events = 0, .revents = 0};
    if (::poll(&asked, 1, 0) == 1 && (asked.revents & POLLHUP) != 0) self->close();
  });
}

void Connection::read() {
  if (reading_ || closing_ || closed_ || outgoing_.size() >= kMostAnswers) return;
  if (paused_ || later_) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(buffer_),
                          [self = shared_from_this()](asio::error_code failed, std::size_t count) {
                            self->reading_ = false;
                            if (self->closing_ || self->closed_) return;
                            if (failed) return self->on_end();
                            self->heard_at_ = time_now();
                            self->reader_.append({self->buffer_.data(), count});
                            self->take_messages();
                            self->watch();
                            self->read();
                          });
}

void Connection::take_messages() {
  if (answered_http()) return;
  for (int count = 0; !closing_ && !closed_ && !paused_; ++count) {
    if (outgoing_.size() >= kMostAnswers) return;  // flush() comes back
    if (count == kMostInATurn) return continue_later();
    const auto message = reader_.next();
    if (!message.ok()) return refuse(message.error());
    if (!message->has_value()) return;
    listener_.on_message(*this, **message);
  }
}

void Connection::continue_later() {
  if (std::exchange(later_, true)) return;
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->later_ = false;
    if (self->over()) return;
    self->take_messages();
    self->watch();
    self->read();
  });
}

// True when these bytes are, or may become, a request by HTTP.
bool Connection::answered_http() {
  const std::string_view bytes = reader_.pending();
  if (bytes.empty() || bytes.substr(0, kHttpStart.size()) != kHttpStart.substr(0, bytes.size())) {
    return false;
  }
  if (bytes.size() > kMostHttpBytes) return false;
  if (bytes.find("\r\n\r\n") == std::string_view::npos) return true;
  const std::string text = listener_.on_metrics(*this);
  outgoing_.push_back({std::make_shared<const std::string>(
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
      "Connection: close\r\nContent-Length: " +
      std::to_string(text.size()) + "\r\n\r\n" + text)});
  closing_ = true;
  flush();
  return true;
}

// The other side has said its last; it may still listen.
void Connection::on_end() {
  if (reader_.inside_message()) return refuse(reader_.cut_off());
  close();
}

void Connection::send(const Message& message, std::vector<Descriptor> extra) {
  put({std::make_shared<const std::string>(encode(message)), 0, std::move(extra)});
}

void Connection::send(std::shared_ptr<const std::string> bytes) {
  put({std::move(bytes), 0, {}});
}

void Connection::put(Outgoing outgoing) {
  if (closing_ || closed_) return;
  outgoing_.push_back(std::move(outgoing));
  flush();
}

void Connection::refuse(const Error& error) {
  if (closing_ || closed_) return;
  listener_.on_refused();
  send(error_message(error));
  closing_ = true;
  watch();
  flush();
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();  // the listener forgets it
  timer_.cancel();
  pause_.cancel();
  memory_pause_.cancel();
  asio::error_code ignored;
  socket_.close(ignored);
  listener_.on_closed(*this);
}

// Sends what the socket takes now, and waits in the loop for the rest.
void Connection::flush() {
  if (writing_ || closed_) return;
  Sent sent = Sent::kAll;
  while (!outgoing_.empty() && (sent = send_front()) == Sent::kAll) outgoing_.pop_front();
  if (closed_) return;
  if (outgoing_.empty()) {
    if (closing_) return close();
    if (!reader_.pending().empty()) continue_later();
    return read();
  }
  flush_later(sent);
}

void Connection::flush_later(Sent when) {
  writing_ = true;
  const auto go_on = [self = shared_from_this()](asio::error_code failed) {
    self->writing_ = false;
    if (failed) return self->close();
    self->flush();
  };
  if (when == Sent::kLater) return socket_.async_wait(Socket::wait_write, go_on);
  memory_pause_.expires_after(kSendPause);
  memory_pause_.async_wait(go_on);
}

// How far the first message has come. Asio has no call that carries descriptors.
Connection::Sent Connection::send_front() {
  Outgoing& front = outgoing_.front();
  while (front.sent < front.bytes->size()) {
    std::vector<int> extra;
    for (const Descriptor& descriptor : front.extra) extra.push_back(descriptor.number());
    const auto left = std::string_view(*front.bytes).substr(front.sent);
    const auto count = send_to(socket_.native_handle(), left, extra, MSG_DONTWAIT);
    if (count < 0) {
      if (errno == ENOBUFS || errno == ENOMEM) return Sent::kWhenThereIsMemory;
      if (errno != EAGAIN && errno != EWOULDBLOCK) close();
      return Sent::kLater;
    }
    front.extra.clear();  // they went with the first byte
    front.sent += static_cast<std::size_t>(count);
  }
  return Sent::kAll;
}

// The time limit applies only to clients that leave a message incomplete, have not registered, or
// do not read their last error.
void Connection::watch() {
  if (closed_) return;
  timer_.cancel();
  if (!closing_ && (paused_ || later_)) return;  // it has said something, and waits for the daemon
  if (registered_ && !closing_ && !reader_.inside_message()) return;
  timer_.expires_after(std::chrono::nanoseconds(patience_));
  timer_.async_wait([self = shared_from_this()](asio::error_code cancelled) {
    if (cancelled || self->closed_) return;
    if (self->closing_) return self->close();
    self->refuse(self->reader_.inside_message()
                     ? self->reader_.cut_off()
                     : bad_input("nothing was said for " +
                                 format_exact(to_seconds(self->patience_)) +
                                 " s, expected a message"));
  });
}

}  // namespace regen::share
