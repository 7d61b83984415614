#include "regen/share/client/client.h"

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
  Waiting waiting(options, client.spec_, WaitFor::kAdmission);
  REGEN_ASSIGN(const bool registered, client.register_job(&waiting));
  if (!registered) REGEN_TRY(client.reconnect(waiting));
  return client;
}

Channel::Sleep Client::sleep_of(Waiting* waiting) {
  if (waiting == nullptr || !waiting->attended()) return {};
  return [waiting](int descriptor) { return waiting->until_readable(descriptor); };
}

Result<bool> Client::register_job(Waiting* waiting) {
  channel_.send({MessageType::kRegister, to_json(spec_)});
  REGEN_ASSIGN(const std::optional<Message> answer, channel_.receive(sleep_of(waiting)));
  if (!answer) return false;
  if (answer->type != MessageType::kRegistered) {
    return bad_input("the daemon answered register with message " +
                     std::to_string(static_cast<int>(answer->type)) +
                     ", expected 65 (another version of regen?)");
  }
  const JsonCursor body(answer->body, "registered");
  REGEN_ASSIGN(const JsonCursor go_field, required_field(body, "go"));
  REGEN_ASSIGN(const std::int64_t go, go_field.whole(1, UINT32_MAX));
  REGEN_ASSIGN(const JsonCursor device_field, required_field(body, "device"));
  REGEN_ASSIGN(const std::int64_t device, device_field.whole(0, UINT16_MAX));
  takes_requests_ = answer->body.value("takes_requests", Json(false)) == Json(true);
  std::vector<Descriptor> files = channel_.take_descriptors();
  files.resize(2);
  REGEN_ASSIGN(page_, ClientPage::map(files[0], static_cast<std::uint32_t>(go)));
  REGEN_ASSIGN(use_, DeviceUse::of(std::move(files[1]), static_cast<std::size_t>(device)));
  seen_ = page_.limit();
  if (spec_.again) return true;
  spec_.again = true;
  spec_.full_bytes = seen_.bytes;
  const bool parked = spec_.deepest >= Depth::kSpill;
  spec_.held_bytes = parked ? std::min(spec_.persistent_bytes, seen_.bytes) : seen_.bytes;
  return true;
}

Result<bool> Client::rejoin() {
  auto channel = Channel::open(options_.socket);
  if (!channel.ok()) {
    if (channel.error().code == ErrorCode::kMissing) return false;
    return channel.error();
  }
  channel_ = std::move(channel).value();
  auto registered = register_job();
  // The daemon may have admitted a job that cannot use what it got.
  if (!registered.ok()) channel_ = Channel();
  reconnections_ += registered.ok() && *registered ? 1 : 0;
  return registered;
}

// Sleeps longer and longer between attempts: a daemon that is down for an hour costs nothing.
Status Client::reconnect(Waiting& waiting) {
  const auto began = Clock::now();
  for (Nanoseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    REGEN_ASSIGN(const bool joined, rejoin());
    if (joined) return {};
    const Nanoseconds spent = std::chrono::nanoseconds(Clock::now() - began).count();
    if (options_.give_up && spent >= *options_.give_up) {
      return limit_reached("the daemon at " + in_quotes(options_.socket) +
                           " has been gone for more than " +
                           format_exact(to_seconds(*options_.give_up)) +
                           " s, expected it to be started again (`regen share serve`)");
    }
    REGEN_TRY(waiting.pause(std::chrono::nanoseconds(pause)));
    waiting.say("the daemon has gone");
  }
}

// A limit that does not ask for less than the job has confirmed is confirmed here: it may have been
// higher for a while, without the job having seen it, and another job may wait for the difference.
void Client::look() {
  const ByteLimit limit = page_.limit();
  const bool news = limit.generation != seen_.generation;
  seen_ = limit;
  if (!news || limit.bytes < spec_.full_bytes) return;
  channel_.send({MessageType::kConfirm, {{"generation", limit.generation}, {"used_bytes", used_}}});
}

// What the daemon says unasked, while the job does not hold the device.
void Client::answer(const Message& message) {
  if (message.type == MessageType::kLimit) look();
  if (message.type != MessageType::kMakeRoom) return;
  const std::string text = message.body.value("depth", std::string());
  const auto depth = parse_depth(text);
  if (make_room_ && depth.ok()) used_ = spec_.held_bytes = make_room_(*depth);
  channel_.send({MessageType::kMadeRoom, {{"left_bytes", spec_.held_bytes}}});
}

Status Client::wait_for_turn(MessageType request, bool in_step) {
  holding_ = false;
  use_.end();
  channel_.send({request, Json::object()});
  ClientOptions options = options_;
  if (in_step) options.interrupt = nullptr;
  Waiting waiting(options, spec_, WaitFor::kTurn);
  while (!holding_) {
    const auto granted = next_turn(waiting);
    if (granted.ok()) continue;
    if (waiting.interrupted()) withdraw();
    return granted.error();
  }
  return {};
}

// Reads one message: whether it gave this job the device.
Result<bool> Client::next_turn(Waiting& waiting) {
  REGEN_ASSIGN(const std::optional<Message> message, channel_.receive(sleep_of(&waiting)));
  if (!message) {
    REGEN_TRY(reconnect(waiting));
    channel_.send({MessageType::kAcquire, Json::object()});
    return false;
  }
  if (message->type != MessageType::kGranted) {
    answer(*message);
    return false;
  }
  if (Status used = use_.begin(); !used.ok()) {
    channel_.send({MessageType::kIdle, Json::object()});  // as if it had not been granted
    return used.error();
  }
  // A grant of a daemon that has ended meanwhile is none: the next one may have looked at the lock before it was taken. Whether it
  // has ended is read after that.
  if (!page_.go() && channel_.hung_up()) {
    use_.end();
    return false;
  }
  holding_ = true;
  spec_.held_bytes = spec_.full_bytes;
  return true;
}

// The job no longer wants the device. A grant that is under way must not be taken for the answer to a
// later request: the daemon answers a question after it, and everything before that is read.
void Client::withdraw() {
  channel_.send({MessageType::kIdle, Json::object()});
  channel_.send({MessageType::kStatus, Json::object()});
  while (true) {
    const auto message = channel_.receive();
    if (!message.ok() || !*message || (**message).type == MessageType::kReport) return;
    answer(**message);
  }
}

Status Client::acquire(bool in_step) {
  if (keep_going()) return {};
  return wait_for_turn(holding_ ? MessageType::kYield : MessageType::kAcquire, in_step);
}

Status Client::yield() {
  return wait_for_turn(holding_ ? MessageType::kYield : MessageType::kAcquire, /*in_step=*/true);
}

void Client::idle() {
  if (!std::exchange(holding_, false)) return;
  Json body = Json::object();
  const Depth park = page_.limit().park;
  if (park != Depth::kPause && make_room_) {
    used_ = spec_.held_bytes = make_room_(park);
    body["left_bytes"] = spec_.held_bytes;
  }
  use_.end();
  channel_.send({MessageType::kIdle, std::move(body)});
}

Bytes Client::byte_limit() {
  look();
  return seen_.bytes;
}

void Client::confirm(Bytes used) {
  used_ = used;
  if (used <= seen_.bytes) spec_.full_bytes = seen_.bytes;
  spec_.held_bytes = holding_ ? spec_.full_bytes : std::min(spec_.held_bytes, spec_.full_bytes);
  channel_.send({MessageType::kConfirm, {{"generation", seen_.generation}, {"used_bytes", used}}});
}

void Client::report_requests(const RequestTimes& times) {
  if (takes_requests_) channel_.send({MessageType::kRequests, to_json(times)});
}

Status Client::update(const Curve& curve) {
  JobSpec next = spec_;
  apply(curve, next);
  REGEN_TRY(check_memory(next));
  idle();
  next.held_bytes = spec_.held_bytes;
  const JobSpec before = std::exchange(spec_, std::move(next));
  channel_.send({MessageType::kUpdate, to_json(curve)});
  Waiting waiting(options_, spec_, WaitFor::kMemory);
  while (true) {
    const auto message = channel_.receive(sleep_of(&waiting));
    if (!message.ok()) {
      const Bytes held = spec_.held_bytes;
      spec_ = before;
      spec_.held_bytes = held;
      if (waiting.interrupted())
        channel_ = Channel();  // the daemon knows the new facts: join again
      return message.error();
    }
    if (!*message) return reconnect(waiting);  // registers with the new daemon, with all facts
    if ((**message).type == MessageType::kUpdated) return {};
    answer(**message);
  }
}

bool Client::poll() {
  while (true) {
    const auto message = channel_.receive_now();
    if (!message.ok()) return false;
    if (!message->has_value()) return !channel_.ended();
    answer(**message);
  }
}

}  // namespace regen::share
