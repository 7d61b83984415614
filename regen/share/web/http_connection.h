// One request and its answer by HTTP. Whatever the other side does, it takes a bounded time and a bounded amount of memory.
#pragma once

#include <array>
#include <asio/basic_stream_socket.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "regen/share/web/http_request.h"

namespace regen::share {

// What is sent: a body that others may be sent too, and its type.
struct HttpAnswer {
  HttpStatus status = HttpStatus::kOk;
  std::string type = {};
  std::shared_ptr<const std::string> body = {};  // none: there is nothing to say but the status
};

// How long each part may take.
struct HttpPatience {
  std::chrono::nanoseconds head =
      std::chrono::seconds(5);  // until the head of the request is whole
  std::chrono::nanoseconds answer = std::chrono::seconds(10);  // until the answer is sent
  std::chrono::nanoseconds end = std::chrono::seconds(1);      // until the other side closes, too
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = asio::generic::stream_protocol::socket;
  // What it is told; both must outlive the connection.
  struct Owner {
    std::function<HttpAnswer(const HttpRequest&)> answer;
    std::function<void(HttpConnection&)> closed;
  };

  // `fields` go with every answer that has a body: lines with their ends.
  HttpConnection(Socket socket, const Owner& owner, const std::string& fields,
                 const HttpPatience& patience);

  void start();
  void close();
  // Whether it has brought the token, and has not been sent all of its answer.
  bool busy() const { return busy_; }

 private:
  void wait_at_most(std::chrono::nanoseconds time);
  void on_late();
  void read();
  void respond(const HttpAnswer& answer);
  void send();
  void linger();
  void drain();

  static constexpr std::size_t kMostDrained = 1 << 16;

  Socket socket_;
  const Owner& owner_;
  const std::string& fields_;
  HttpPatience patience_;
  asio::steady_timer timer_;
  HttpReader reader_;
  std::array<char, 4096> buffer_;
  std::string head_;
  std::shared_ptr<const std::string> body_;
  std::size_t drained_ = 0;
  bool answering_ = false;
  bool busy_ = false;
  bool closed_ = false;
};

}  // namespace regen::share
