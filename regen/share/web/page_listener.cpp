#include "regen/share/web/page_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "regen/base/text.h"

namespace regen::share {
namespace {

constexpr int kWaiting =
    128;  // connections that are not accepted yet; the next ones would have to try again

Error page_error(const PageAddress& address, const char* call) {
  return bad_input("cannot serve the page at " + in_quotes(to_string(address)) + ": " + call +
                   ": " + std::strerror(errno) + ", expected a port that is free (0: any)");
}

Result<Descriptor> listen_at_port(PageAddress& address) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return page_error(address, "socket");
  // A daemon that is started again need not wait for the connections of the former one to be forgotten.
  const int on = 1;
  ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(address.port);
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(socket.number(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0) {
    return page_error(address, "bind");
  }
  if (::listen(socket.number(), kWaiting) != 0) return page_error(address, "listen");
  socklen_t size = sizeof place;
  if (::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&place), &size) != 0) {
    return page_error(address, "getsockname");
  }
  address.port = ntohs(place.sin_port);
  return socket;
}

}  // namespace

Result<PageListener> PageListener::open(const PageAddress& address) {
  PageListener listener(address);
  if (address.path.empty()) {
    REGEN_ASSIGN(listener.tcp_, listen_at_port(listener.address_));
  } else {
    REGEN_ASSIGN(
        ListenSocket opened,
        ListenSocket::open(address.path, 0600, {.name = "a page", .expected = "another --page"}));
    listener.unix_.emplace(std::move(opened));
  }
  return listener;
}

}  // namespace regen::share
