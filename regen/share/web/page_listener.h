// The socket at which browsers come in: a port of this machine, or a Unix socket of this user.
#pragma once

#include <optional>

#include "regen/base/result.h"
#include "regen/share/protocol/listen_socket.h"
#include "regen/share/web/page_address.h"

namespace regen::share {

class PageListener {
 public:
  static Result<PageListener> open(const PageAddress& address);

  // With the port that was chosen.
  const PageAddress& address() const { return address_; }
  int family() const { return unix_ ? AF_UNIX : AF_INET; }
  int number() const { return unix_ ? unix_->listener() : tcp_.number(); }

 private:
  explicit PageListener(PageAddress address) : address_(std::move(address)) {}

  PageAddress address_;
  Descriptor tcp_;
  std::optional<ListenSocket> unix_;
};

}  // namespace regen::share
