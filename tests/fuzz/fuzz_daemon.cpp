// The daemon with state: several clients that say anything in any order, daemons that are killed and started again on the same files, time
// that passes, settling. Whatever happens, no job has more than the device has, every answer is whole and comes once, and when all have
// gone nothing is left. REGEN_FUZZ_COUNT=FILE: how many messages were sent.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "regen/base/json.h"
#include "regen/share/daemon/daemon_loop.h"
#include "regen/share/protocol/message.h"

namespace regen::share {
namespace {

constexpr Bytes kDevice = 1000;
constexpr std::size_t kClients = 6;
// The settling of some runs, short enough to pass in one.
constexpr Nanoseconds kSettle = 300'000;

std::int64_t messages_sent = 0;

void must(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

// The bytes of the input, and zeros after them.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  std::string text(std::size_t most) {
    const std::size_t count = std::min(most, size_ - std::min(at_, size_));
    at_ += count;
    return {reinterpret_cast<const char*>(data_) + at_ - count, count};
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

class World {
 public:
  explicit World(std::uint8_t flags) : flags_(flags) {
    char name[] = "/tmp/regen-fuzz-XXXXXX";
    folder_ = ::mkdtemp(name);
    start();
  }
  ~World() {
    for (Client& client : clients_) client = {};
    settle();
    for (const JobStatus& job : daemon_->status().devices[0].jobs) {
      must(std::string(job.memory_state) == "absent", "a job is left without its connection");
    }
    must(daemon_->status().connections == 0, "a connection is left");
    daemon_.reset();
    listen_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void step(Input& input) {
    const std::uint8_t what = input.byte();
    Client& client = clients_[what % kClients];
    switch (what / kClients % 8) {
      case 0:
        client = {};
        break;
      case 1:
        restart(what);
        break;
      case 2:
        send(client, input.text(input.byte()));
        break;
      case 3:
        std::this_thread::sleep_for(std::chrono::microseconds(input.byte() * 4));
        break;
      default:
        send(client, encode(message(input)));
        break;
    }
    if ((what & 0x80) == 0) daemon_->poll();
    for (Client& one : clients_) drain(one);
    check();
  }

 private:
  struct Client {
    Descriptor socket;
    FrameReader reader{Direction::kToClient};
    bool refused = false;
  };

  DaemonOptions options() const {
    DaemonOptions options{.socket = folder_ + "/s",
                          .devices = {{"cpu", kDevice}, {"gpu", kDevice}},
                          .turn = 100'000,
                          .settle = (flags_ & 1) != 0 ? kSettle : 0,
                          .admission = 3'000'000,
                          .holder_patience = 2'000'000,
                          .patience = 5'000'000,
                          .max_connections = (flags_ & 2) != 0 ? 4u : 100u};
    if ((flags_ & 4) != 0) {
      options.rights = *Rights::parse(
          R"({"administrators": [], "default": {"priority": 2, "memory": 900, "jobs": 3}})", "");
    }
    return options;
  }
  void start() {
    const DaemonOptions given = options();
    listen_ = std::make_unique<ListenSocket>(
        ListenSocket::open(given.socket, given.mode, {.name = "a daemon", .expected = "none"})
            .value());
    auto use = UseFiles::open(given.socket + ".use.d");
    must(use.ok(), "the folder of locks");
    daemon_ = std::make_unique<Daemon>(given, *listen_, std::move(use).value());
    if (!daemon_->begin().ok()) std::abort();
  }
  // Killed, or asked to stop.
  void restart(std::uint8_t how) {
    if ((how & 1) != 0) {
      ::raise(SIGTERM);
      daemon_->poll();
    }
    daemon_.reset();
    listen_.reset();
    start();
  }
  // Everything that follows from what was done, settling included.
  void settle() {
    for (int turn = 0; turn < 2000; ++turn) {
      daemon_->poll();
      if (daemon_->status().connections == 0) return;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void connect(Client& client) {
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0,
         "socketpair");
    client = {Descriptor(ends[0])};
    daemon_->admit_connection(
        Connection::Socket(daemon_->loop(), asio::local::stream_protocol(), ends[1]));
  }
  void send(Client& client, const std::string& bytes) {
    if (!client.socket.valid()) connect(client);
    (void)!::send(client.socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ++messages_sent;
  }
  void drain(Client& client) {
    if (!client.socket.valid()) return;
    std::array<char, 16384> buffer;
    while (true) {
      const ssize_t count = ::recv(client.socket.number(), buffer.data(), buffer.size(), 0);
      if (count > 0) client.reader.append({buffer.data(), static_cast<std::size_t>(count)});
      if (count <= 0) {
        const bool gone = count == 0 || errno != EAGAIN;
        read_answers(client);
        if (gone) client = {};
        return;
      }
    }
  }
  void read_answers(Client& client) {
    if (client.reader.pending().substr(0, 4) == "HTTP") return;
    while (true) {
      const auto answer = client.reader.next();
      must(answer.ok(), "an answer that is no message");
      if (!answer->has_value()) return;
      must(!client.refused, "something after an error");
      client.refused = (**answer).type == MessageType::kError;
    }
  }

  static Bytes bytes_of(std::uint8_t byte) { return byte % 12 * 100; }
  static Message message(Input& input) {
    constexpr std::array kTypes{
        MessageType::kRegister, MessageType::kRegister, MessageType::kAcquire,
        MessageType::kYield,    MessageType::kIdle,     MessageType::kCheck,
        MessageType::kStatus,   MessageType::kUpdate,   MessageType::kConfirm,
        MessageType::kMadeRoom, MessageType::kChange,   MessageType::kAcquire};
    const MessageType type = kTypes[input.byte() % kTypes.size()];
    Json body = Json::object();
    switch (type) {
      case MessageType::kRegister:
      case MessageType::kCheck:
        add_job(body, input);
        break;
      case MessageType::kUpdate:
        add_curve(body, input);
        break;
      case MessageType::kIdle:
        if (input.byte() % 2 == 0) body["left_bytes"] = bytes_of(input.byte());
        break;
      case MessageType::kConfirm:
        body["generation"] = input.byte() % 6;
        body["used_bytes"] = bytes_of(input.byte());
        break;
      case MessageType::kMadeRoom:
        body["left_bytes"] = bytes_of(input.byte());
        break;
      case MessageType::kChange:
        body["job"] = name(input.byte());
        body["memory"] = bytes_of(input.byte());
        if (input.byte() % 2 == 0) body["priority"] = input.byte() % 4;
        break;
      default:
        break;
    }
    return {type, std::move(body)};
  }
  static std::string name(std::uint8_t byte) {
    return std::string(1, static_cast<char>('a' + byte % 5));
  }
  static void add_job(Json& body, Input& input) {
    body["name"] = body["identity"] = name(input.byte());
    body["memory"] = bytes_of(input.byte());
    const std::uint8_t flags = input.byte();
    if ((flags & 1) != 0) body["priority"] = input.byte() % 4;
    if ((flags & 2) != 0) add_curve(body, input);
    if ((flags & 4) != 0) {
      body["again"] = true;
      body["full_bytes"] = bytes_of(input.byte());
      body["held_bytes"] = bytes_of(input.byte());
    }
    if ((flags & 8) != 0) body["device"] = (flags & 16) != 0 ? "gpu" : "moon";
    if ((flags & 32) != 0) body["deadline_seconds"] = 0.001 * input.byte();
  }
  static void add_curve(Json& body, Input& input) {
    constexpr std::array kDepths{"pause", "spill", "leave"};
    body["deepest"] = kDepths[input.byte() % kDepths.size()];
    body["persistent_bytes"] = bytes_of(input.byte()) / 4;
    for (int count = input.byte() % 4; count > 0; --count) {
      body["points"].push_back(Json::array({bytes_of(input.byte()), 0.001 * input.byte()}));
    }
  }

  void check() {
    for (const DeviceStatus& device : daemon_->status().devices) {
      Bytes held = 0;
      int holders = 0;
      for (const JobStatus& job : device.jobs) {
        // What a job says it uses beyond its limit is its own affair, and is not given to others.
        held += job.over_limit() ? 0 : job.held_bytes;
        holders += job.state == JobState::kHolding ? 1 : 0;
      }
      must(held <= device.bytes, "the jobs have more than the device");
      must(holders <= 1, "two jobs hold a device");
    }
  }

  std::uint8_t flags_;
  std::string folder_;
  std::unique_ptr<ListenSocket> listen_;
  std::unique_ptr<Daemon> daemon_;
  std::array<Client, kClients> clients_;
};

}  // namespace
}  // namespace regen::share

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  regen::share::Input input(data, size);
  {
    regen::share::World world(input.byte());
    while (!input.empty()) world.step(input);
  }
  if (const char* path = std::getenv("REGEN_FUZZ_COUNT")) {
    static std::int64_t runs = 0;
    if (++runs % 1000 == 0) {
      std::FILE* file = std::fopen(path, "w");
      std::fprintf(file, "%lld\n", static_cast<long long>(regen::share::messages_sent));
      std::fclose(file);
    }
  }
  return 0;
}
