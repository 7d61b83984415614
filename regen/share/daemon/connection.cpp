#include "regen/share/daemon/connection.h"

#include <asio/buffer.hpp>
#include <cerrno>
#include <utility>

#include "regen/share/protocol/unix_socket.h"

namespace regen::share {
namespace {

// A client that does not read its answers is not read from either.
constexpr std::size_t kMostAnswers = 16;
constexpr std::size_t kMostHttpBytes = 8192;
constexpr std::string_view kHttpStart = "GET ";

}  // namespace

Connection::Connection(Socket socket, Listener& listener, Nanoseconds patience)
    : socket_(std::move(socket)),
      listener_(listener),
      patience_(patience),
      timer_(socket_.get_executor()) {}

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

std::int64_t Connection::process() {
  return peer_of(socket_.native_handle()).pid;
}

void Connection::read() {
  if (reading_ || closing_ || closed_ || outgoing_.size() >= kMostAnswers) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(buffer_),
                          [self = shared_from_this()](asio::error_code failed, std::size_t count) {
                            self->reading_ = false;
                            if (self->closing_ || self->closed_) return;
                            if (failed) return self->on_end();
                            self->reader_.append({self->buffer_.data(), count});
                            self->take_messages();
                            self->watch();
                            self->read();
                          });
}

void Connection::take_messages() {
  if (answered_http()) return;
  while (!closing_ && !closed_) {
    const auto message = reader_.next();
    if (!message.ok()) return refuse(message.error());
    if (!message->has_value()) return;
    listener_.on_message(*this, **message);
  }
}

// True when these bytes are, or may become, a request by HTTP.
bool Connection::answered_http() {
  const std::string_view bytes = reader_.pending();
  if (bytes.empty() || bytes.substr(0, kHttpStart.size()) != kHttpStart.substr(0, bytes.size())) {
    return false;
  }
  if (bytes.size() > kMostHttpBytes) return false;
  if (bytes.find("\r\n\r\n") == bytes.npos) return true;
  const std::string text = listener_.on_metrics();
  outgoing_.push_back(
      {"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
       "Connection: close\r\nContent-Length: " +
       std::to_string(text.size()) + "\r\n\r\n" + text});
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
  if (closing_ || closed_) return;
  outgoing_.push_back({encode(message), 0, std::move(extra)});
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
  asio::error_code ignored;
  socket_.close(ignored);
  listener_.on_closed(*this);
}

// Sends what the socket takes now, and waits in the loop for the rest.
void Connection::flush() {
  if (writing_ || closed_) return;
  while (!outgoing_.empty()) {
    if (!send_front()) break;
    outgoing_.pop_front();
  }
  if (closed_) return;
  if (outgoing_.empty()) {
    if (closing_) return close();
    return read();
  }
  writing_ = true;
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](asio::error_code failed) {
    self->writing_ = false;
    if (failed) return self->close();
    self->flush();
  });
}

// Whether the first message is sent completely. Asio has no call that carries descriptors.
bool Connection::send_front() {
  Outgoing& front = outgoing_.front();
  while (front.sent < front.bytes.size()) {
    std::vector<int> extra;
    for (const Descriptor& descriptor : front.extra) extra.push_back(descriptor.number());
    const auto left = std::string_view(front.bytes).substr(front.sent);
    const auto count = send_to(socket_.native_handle(), left, extra, MSG_DONTWAIT);
    if (count < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) close();
      return false;
    }
    front.extra.clear();  // they went with the first byte
    front.sent += static_cast<std::size_t>(count);
  }
  return true;
}

// The time limit applies only to clients that leave a message incomplete, have not registered, or
// do not read their last error.
void Connection::watch() {
  if (closed_) return;
  timer_.cancel();
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
