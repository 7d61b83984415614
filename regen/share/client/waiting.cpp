#include "regen/share/client/waiting.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <thread>

#include "regen/base/progress/progress_board.h"
#include "regen/base/units.h"
#include "regen/share/client/channel.h"
#include "regen/share/client/client.h"

namespace regen::share {
namespace {

using Clock = std::chrono::steady_clock;

// A wait that is over by then says nothing.
constexpr std::chrono::milliseconds kShort{200};
// How soon an interrupt counts that reached another thread.
constexpr std::chrono::milliseconds kAttention{500};
// Between two questions for the place in the queue, which cost the daemon time.
constexpr std::chrono::seconds kLook{2};

std::string_view subject_of(WaitFor what) {
  switch (what) {
    case WaitFor::kAdmission:
      return "for admission";
    case WaitFor::kMemory:
      return "for memory";
    case WaitFor::kTurn:
      break;
  }
  return "for the device";
}

const Json& list_of(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() || !found->is_array() ? kNone : *found;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

std::int64_t priority_of(const Json& job) {
  const auto found = job.find("priority");
  return found == job.end() || !found->is_number_integer() ? 0 : found->get<std::int64_t>();
}

// Those of higher priority go first, then those that came first, which stand first in the report.
std::string place_text(const Json& newcomers, const std::string& identity) {
  const auto mine = std::ranges::find_if(
      newcomers, [&](const Json& job) { return text_of(job, "identity") == identity; });
  if (mine == newcomers.end()) return "";
  std::size_t before = 0;
  for (auto other = newcomers.begin(); other != newcomers.end(); ++other) {
    const bool higher = priority_of(*other) > priority_of(*mine);
    const bool earlier = other < mine && priority_of(*other) == priority_of(*mine);
    before += higher || earlier ? 1 : 0;
  }
  return "place " + std::to_string(before + 1) + " of " + std::to_string(newcomers.size());
}

std::string turn_text(const Json& jobs, const std::string& identity) {
  std::size_t others = 0;
  bool here = false;
  for (const Json& job : jobs) {
    const bool mine = text_of(job, "identity") == identity;
    here |= mine;
    others += !mine && text_of(job, "state") == "waiting" ? 1 : 0;
  }
  if (!here) return "";
  if (others == 0) return "no other job waits";
  return format_count(others, "other job") + (others == 1 ? " waits" : " wait");
}

}  // namespace

std::string queue_text(const Json& report, const std::string& identity) {
  for (const Json& device : list_of(report, "devices")) {
    if (auto text = place_text(list_of(device, "newcomers"), identity); !text.empty()) return text;
    if (auto text = turn_text(list_of(device, "jobs"), identity); !text.empty()) return text;
  }
  return "";
}

Waiting::Waiting(const ClientOptions& options, const JobSpec& job, WaitFor what)
    : options_(options), job_(job), what_(what), last_look_(Clock::now() - kLook) {}

bool Waiting::attended() const {
  return options_.interrupt != nullptr || ProgressBoard::of_process().watched();
}

bool Waiting::interrupted() const {
  return options_.interrupt != nullptr && *options_.interrupt;
}

Error Waiting::interruption() const {
  return limit_reached("interrupted while job '" + job_.name + "' waited " +
                       std::string(subject_of(what_)));
}

Status Waiting::until_readable(int descriptor) {
  pollfd asked{.fd = descriptor, .events = POLLIN, .revents = 0};
  for (auto patience = kShort; !interrupted(); patience = kAttention) {
    const int found = ::poll(&asked, 1, static_cast<int>(patience.count()));
    if (found > 0) return {};
    if (found < 0 && errno != EINTR) return {};  // the read sleeps instead
    if (found == 0) look();
  }
  return interruption();
}

Status Waiting::pause(std::chrono::nanoseconds time) {
  if (time > kShort) look();
  std::this_thread::sleep_for(time);
  return interrupted() ? Status(interruption()) : Status();
}

void Waiting::say(const std::string& note) {
  if (progress_) progress_->say(note);
}

void Waiting::look() {
  if (!progress_) {
    progress_.emplace(
        ProgressState{.stage = "wait", .subject = std::string(subject_of(what_)), .joins = false});
  }
  if (!progress_->watched() || Clock::now() - last_look_ < kLook) return;
  last_look_ = Clock::now();
  const auto report = ask(options_.socket, {MessageType::kStatus}, MessageType::kReport);
  if (report.ok()) progress_->say(queue_text(*report, job_.identity));
}

}  // namespace regen::share
