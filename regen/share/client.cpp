#include "regen/share/client.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "regen/base/json_fields.h"
#include "regen/base/text.h"

namespace regen::share {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Nanoseconds kFirstPause = 10'000'000;
constexpr Nanoseconds kLongestPause = 250'000'000;

// Unlike any other job's, also on a machine that was cloned or restarted.
std::string new_identity() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) {
    number = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  }
  return std::to_string(::getpid()) + "-" + std::to_string(number);
}

}  // namespace

Client::Client(ClientOptions options, JobSpec spec)
    : options_(std::move(options)), spec_(std::move(spec)) {
  if (spec_.identity.empty()) spec_.identity = new_identity();
}

Result<Client> Client::connect(const ClientOptions& options, JobSpec spec) {
  Client client(options, std::move(spec));
  REGEN_ASSIGN(client.channel_, Channel::open(options.socket));
  REGEN_ASSIGN(const bool registered, client.register_job());
  if (!registered) REGEN_TRY(client.reconnect());
  client.spec_.again = true;
  return client;
}

Result<bool> Client::register_job() {
  channel_.send({MessageType::kRegister, to_json(spec_)});
  REGEN_ASSIGN(const std::optional<Message> answer, channel_.receive());
  if (!answer) return false;
  if (answer->type != MessageType::kRegistered) {
    return bad_input("the daemon answered register with message " +
                     std::to_string(static_cast<int>(answer->type)) + ", expected 65");
  }
  const JsonCursor body(answer->body, "registered");
  REGEN_ASSIGN(const JsonCursor field, required_field(body, "go"));
  REGEN_ASSIGN(const std::int64_t go, field.whole(1, UINT32_MAX));
  REGEN_ASSIGN(page_, ClientPage::map(channel_.take_descriptor(), static_cast<std::uint32_t>(go)));
  return true;
}

// Sleeps longer and longer between attempts: a daemon that is down for an hour costs nothing.
Status Client::reconnect() {
  const auto began = Clock::now();
  for (Nanoseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    auto channel = Channel::open(options_.socket);
    if (channel.ok()) {
      channel_ = std::move(channel).value();
      REGEN_ASSIGN(const bool registered, register_job());
      if (registered) break;
    } else if (channel.error().code != ErrorCode::kMissing) {
      return channel.error();
    }
    const Nanoseconds spent = std::chrono::nanoseconds(Clock::now() - began).count();
    if (options_.give_up && spent >= *options_.give_up) {
      return limit_reached("the daemon at " + in_quotes(options_.socket) +
                           " has been gone for more than " +
                           format_exact(to_seconds(*options_.give_up)) + " s");
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
  }
  ++reconnections_;
  return {};
}

Status Client::wait_for_turn(MessageType request) {
  holding_ = false;
  channel_.send({request, Json::object()});
  while (true) {
    REGEN_ASSIGN(const std::optional<Message> message, channel_.receive());
    if (!message) {
      REGEN_TRY(reconnect());
      channel_.send({MessageType::kAcquire, Json::object()});
    } else if (message->type == MessageType::kGranted) {
      holding_ = true;
      return {};
    }
  }
}

Status Client::acquire() {
  if (keep_going()) return {};
  return wait_for_turn(holding_ ? MessageType::kYield : MessageType::kAcquire);
}

Status Client::yield() {
  return wait_for_turn(holding_ ? MessageType::kYield : MessageType::kAcquire);
}

void Client::idle() {
  if (!std::exchange(holding_, false)) return;
  channel_.send({MessageType::kIdle, Json::object()});
}

}  // namespace regen::share
