// What tests of trust have in common: another user, raw messages, and the daemon's log.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "regen/base/file.h"
#include "regen/share/client/channel.h"
#include "regen/share/daemon/rights.h"
#include "regen/share/input/feed_server.h"
#include "regen/share/input/feed_wire.h"
#include "regen/share/protocol/file_lock.h"
#include "regen/share/protocol/state_file.h"
#include "regen/share/protocol/unix_socket.h"
#include "tests/share/support/processes.h"
#include "tests/share/support/stranger.h"

namespace regen::share {

inline constexpr uid_t kNobody = 65534;
inline constexpr int kSkipped = 77;

inline std::string register_text(const std::string& name, const std::string& more = "") {
  return R"({"name":")" + name + R"(","identity":")" + name + R"(","memory":5)" + more + "}";
}

// What the daemon logs, for processes that read it meanwhile.
struct Log {
  explicit Log(const TemporaryFolder& folder) : path(folder.path("log")) {}
  std::function<void(const std::string&)> writer() const {
    return [path = path](const std::string& line) {
      std::ofstream(path, std::ios::app) << line << "\n";
    };
  }
  std::string text() const {
    const auto content = read_file(path);
    return content.ok() ? *content : "";
  }
  std::size_t count(const std::string& part) const {
    std::size_t found = 0;
    const std::string all = text();
    for (std::size_t at = all.find(part); at != std::string::npos; at = all.find(part, at + 1))
      ++found;
    return found;
  }
  std::string path;
};

// Runs as another user; kSkipped where that is not possible.
inline int as_user(uid_t user, const std::function<int()>& body) {
  Process other([&] {
    if (::setgid(user) != 0 || ::setuid(user) != 0) return kSkipped;
    return body();
  });
  return other.wait();
}

inline Message asked(MessageType type, Json body = Json::object()) {
  return {type, std::move(body)};
}

// The text of the error that answers a message; empty when it is answered as it should be.
inline std::string refusal(const std::string& socket, const Message& question, MessageType answer) {
  const auto found = ask(socket, question, answer);
  return found.ok() ? "" : found.error().message;
}

}  // namespace regen::share
