#include "regen/share/web/http_connection.h"

#include <asio/buffer.hpp>
#include <asio/write.hpp>
#include <utility>

namespace regen::share {

HttpConnection::HttpConnection(Socket socket, const Owner& owner, const std::string& fields,
                               const HttpPatience& patience)
    : socket_(std::move(socket)),
      owner_(owner),
      fields_(fields),
      patience_(patience),
      timer_(socket_.get_executor()) {}

void HttpConnection::start() {
  wait_at_most(patience_.head);
  read();
}

void HttpConnection::close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();  // the owner forgets it
  timer_.cancel();
  asio::error_code ignored;
  socket_.close(ignored);
  owner_.closed(*this);
}

// The end of a time is the same for a side that says nothing and for one that says a byte now and then.
void HttpConnection::wait_at_most(std::chrono::nanoseconds time) {
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this()](asio::error_code cancelled) {
    if (!cancelled && !self->closed_) self->on_late();
  });
}

void HttpConnection::on_late() {
  if (answering_) return close();
  respond({.status = HttpStatus::kTooSlow});
}

void HttpConnection::read() {
  socket_.async_read_some(asio::buffer(buffer_), [self = shared_from_this()](
                                                     asio::error_code failed, std::size_t count) {
    if (self->closed_ || self->answering_) return;
    if (failed) return self->close();
    if (!self->reader_.append({self->buffer_.data(), count})) return self->read();
    const HttpStatus status = self->reader_.status();
    const bool whole = status == HttpStatus::kOk;
    self->respond(whole ? self->owner_.answer(self->reader_.request()) : HttpAnswer{status});
  });
}

void HttpConnection::respond(const HttpAnswer& answer) {
  answering_ = true;
  busy_ = answer.status == HttpStatus::kOk;
  body_ = answer.body ? answer.body : std::make_shared<const std::string>();
  head_ = "HTTP/1.1 " + std::to_string(static_cast<int>(answer.status)) + " ";
  head_ += reason(answer.status);
  head_ += "\r\nConnection: close\r\nContent-Length: " + std::to_string(body_->size()) + "\r\n";
  if (answer.status == HttpStatus::kNotAllowed) head_ += "Allow: GET\r\n";
  if (answer.body) head_ += "Content-Type: " + answer.type + "\r\n" + fields_;
  head_ += "\r\n";
  send();
}

void HttpConnection::send() {
  wait_at_most(patience_.answer);
  const std::array<asio::const_buffer, 2> both{asio::buffer(head_), asio::buffer(*body_)};
  asio::async_write(socket_, both,
                    [self = shared_from_this()](asio::error_code failed, std::size_t) {
                      if (self->closed_) return;
                      if (failed) return self->close();
                      self->busy_ = false;
                      self->body_.reset();
                      self->linger();
                    });
}

// Bytes that come after the request would make the kernel throw away what the other side has not read yet.
void HttpConnection::linger() {
  wait_at_most(patience_.end);
  asio::error_code failed;
  socket_.shutdown(asio::socket_base::shutdown_send, failed);
  if (failed) return close();
  drain();
}

void HttpConnection::drain() {
  socket_.async_read_some(asio::buffer(buffer_),
                          [self = shared_from_this()](asio::error_code failed, std::size_t count) {
                            if (self->closed_) return;
                            self->drained_ += count;
                            if (failed || self->drained_ > kMostDrained) return self->close();
                            self->drain();
                          });
}

}  // namespace regen::share
