#include "regen/share/input/feed_guests.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "regen/base/json.h"
#include "regen/base/text.h"
#include "regen/share/protocol/process_end.h"

namespace regen::share {
namespace {

using asio::posix::stream_descriptor;

constexpr std::size_t kMaxConsumers = 1000;
// Connections that have not said hello; above that, those that have had time for it go.
constexpr std::size_t kMaxStrangers = 64;
constexpr auto kTimeForHello = std::chrono::milliseconds(1000);
// Before connections are taken again when the process has no descriptor left.
constexpr auto kPauseWithoutDescriptors = std::chrono::milliseconds(100);

// One line that names the first difference.
Status check_settings(const std::string& ours, const std::string& theirs) {
  if (ours == theirs) return {};
  REGEN_ASSIGN(const Json mine, parse_json(ours, "settings of the shared input"));
  REGEN_ASSIGN(const Json asked, parse_json(theirs, "settings of the consumer"));
  REGEN_TRY(JsonCursor(asked, "settings of the consumer").expect_object());
  for (const auto& [key, value] : mine.items()) {
    if (asked.contains(key) && asked[key] == value) continue;
    return bad_input("the shared input has " + key + " " + excerpt(value) + ", this job asks for " +
                     (asked.contains(key) ? excerpt(asked[key]) : "none") +
                     ", expected the same or another name");
  }
  return bad_input("the shared input has other settings than this job");
}

FeedFrame error_frame(const std::string& text) {
  return {.kind = FrameKind::kError, .text = text};
}

FeedFrame frame_of(const FeedItem& item) {
  FeedFrame frame{.slot = item.slot,
                  .serial = item.serial,
                  .position = item.position,
                  .lost = item.lost,
                  .text = item.text};
  using Kind = FeedItem::Kind;
  frame.kind = item.kind == Kind::kBatch      ? FrameKind::kBatch
               : item.kind == Kind::kEpochEnd ? FrameKind::kEpochEnd
               : item.kind == Kind::kEnd      ? FrameKind::kEnd
                                              : FrameKind::kError;
  return frame;
}

}  // namespace

// It counts once it has said hello.
struct FeedGuests::Guest {
  Guest(asio::io_context& loop, FeedSocket connected)
      : socket(std::move(connected)), readable(loop), patience(loop) {}
  // False where the system is short of what that takes.
  bool watch() {
    Descriptor watched = Descriptor::copy_of(socket.number());
    asio::error_code failed;
    if (watched.valid()) readable.assign(watched.number(), failed);
    if (!watched.valid() || failed) return false;
    watched.release();
    return true;
  }
  FeedSocket socket;
  stream_descriptor readable;
  ProcessEnd process;
  asio::steady_timer patience;
  std::chrono::steady_clock::time_point came = std::chrono::steady_clock::now();
  bool known = false;
  bool reads = false;  // is in the mark
};

FeedGuests::FeedGuests(asio::io_context& loop, Descriptor listener, Terms terms, FeedBooks& books,
                       FeedMark& mark)
    : terms_(std::move(terms)),
      loop_(loop),
      listener_(loop),
      first_consumer_deadline_(loop),
      accept_pause_(loop),
      stuck_(loop),
      books_(books),
      mark_(mark) {
  if (!listener.valid()) throw std::system_error(errno, std::generic_category(), "listen socket");
  listener_.assign(listener.number());
  listener.release();
  wait_for_first();
  accept();
}

void FeedGuests::settle() {
  const FeedBooks::Due due = books_.settle();
  watch_for_stuck(due.stuck);
  for (const auto& [id, item] : due.deliveries) {
    const auto found = guests_.find(id);
    // It reads one answer for each request: a socket that is full has a consumer that cheats.
    if (found != guests_.end() && !found->second->socket.send(frame_of(item))) close(id);
  }
}

void FeedGuests::watch_for_stuck(bool stuck) {
  if (stuck == watching_) return;
  watching_ = stuck;
  if (!stuck) {
    stuck_.cancel();
    return;
  }
  stuck_.expires_after(std::chrono::nanoseconds(terms_.patience));
  stuck_.async_wait([this](asio::error_code cancelled) {
    if (cancelled) return;
    books_.with([this](FeedQueue& queue) {
      if (!queue.stuck()) return;
      queue.fail_stuck("consumers keep batches in all " + std::to_string(terms_.slots) +
                       " slots of the shared input while they wait for more, expected fewer "
                       "batches kept (copies of them) or more slots");
    });
    settle();
  });
}

void FeedGuests::wait_for_first() {
  first_consumer_deadline_.expires_after(std::chrono::nanoseconds(terms_.patience));
  first_consumer_deadline_.async_wait([this](asio::error_code cancelled) {
    if (!cancelled) books_.end();
  });
}

void FeedGuests::accept() {
  listener_.async_wait(stream_descriptor::wait_read, [this](asio::error_code failed) {
    if (failed) return;
    Descriptor socket(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC));
    const bool out_of_descriptors = !socket.valid() && (errno == EMFILE || errno == ENFILE);
    const bool no_guest =
        !socket.valid() && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR);
    if (out_of_descriptors ? !drop_a_stranger({}) : !socket.valid() && !no_guest)
      return accept_later();
    if (socket.valid()) welcome(FeedSocket(std::move(socket)));
    accept();
  });
}

// Some will be closed; asking at once would spin.
void FeedGuests::accept_later() {
  accept_pause_.expires_after(kPauseWithoutDescriptors);
  accept_pause_.async_wait([this](asio::error_code cancelled) {
    if (!cancelled) accept();
  });
}

// A guest that sends nothing gives its place to others, the first to come first. False when there is none.
bool FeedGuests::drop_a_stranger(std::chrono::milliseconds least_age) {
  const auto first = std::find_if(guests_.begin(), guests_.end(),
                                  [](const auto& entry) { return !entry.second->known; });
  if (first == guests_.end()) return false;
  if (std::chrono::steady_clock::now() - first->second->came < least_age) return false;
  (void)first->second->socket.send(error_frame(
      "too many connections say nothing to the shared input, expected a hello at once"));
  close(first->first);
  return true;
}

void FeedGuests::welcome(FeedSocket socket) {
  if (socket.other_process_ended()) return;
  if (guests_.size() >= kMaxConsumers) {
    (void)socket.send(error_frame("the shared input has " + std::to_string(kMaxConsumers) +
                                  " consumers, expected no more"));
    return;
  }
  const auto strangers = std::count_if(guests_.begin(), guests_.end(),
                                       [](const auto& entry) { return !entry.second->known; });
  if (static_cast<std::size_t>(strangers) >= kMaxStrangers) drop_a_stranger(kTimeForHello);
  const ConsumerId id(next_id_++);
  const auto guest = std::make_shared<Guest>(loop_, std::move(socket));
  if (guest->socket.process() >= 0) {
    guest->process =
        ProcessEnd(loop_, Descriptor::copy_of(guest->socket.process()), [this, id] { close(id); });
  }
  if (!guest->watch() || (guest->socket.other_process() > 0 && !guest->process.known())) {
    (void)guest->socket.send(
        error_frame("the shared input has no descriptor left, expected fewer consumers"));
    drop_a_stranger({});
    return;
  }
  guests_.emplace(id, guest);
  guest->patience.expires_after(std::chrono::nanoseconds(terms_.patience));
  guest->patience.async_wait([this, id, guest](asio::error_code cancelled) {
    if (!cancelled && !guest->known) close(id);
  });
  read(id, guest);
}

void FeedGuests::read(ConsumerId id, const Shared& guest) {
  guest->readable.async_wait(stream_descriptor::wait_read,
                             [this, id, guest](asio::error_code failed) {
                               if (!failed && guests_.contains(id)) on_readable(id, guest);
                             });
}

void FeedGuests::on_readable(ConsumerId id, const Shared& guest) {
  FeedFrame frame;
  const auto arrival = guest->socket.receive(frame, true);
  // A consumer that comes while the last one goes has to look for another producer.
  const bool late = !guest->known && books_.over();
  if (late || (arrival.ok() && *arrival == Arrival::kGone)) return close(id);
  Status done;
  if (!arrival.ok()) done = arrival.error();
  if (arrival.ok() && *arrival == Arrival::kFrame) done = take(id, *guest, frame);
  if (!done.ok()) {
    (void)guest->socket.send(error_frame(done.error().message));
    return close(id);
  }
  settle();
  if (guests_.contains(id)) read(id, guest);
}

Status FeedGuests::take(ConsumerId id, Guest& guest, const FeedFrame& frame) {
  if (!guest.known) return hello(id, guest, frame);
  if (frame.kind == FrameKind::kBye) forget_reader(guest);
  return books_.with([&](FeedQueue& queue) -> Status {
    switch (frame.kind) {
      case FrameKind::kWant:
        return queue.want(id);
      case FrameKind::kReady:
        queue.ready(id);
        return {};
      case FrameKind::kReturn:
        return queue.give_back(id, frame.slot, frame.serial);
      case FrameKind::kMove:
        queue.move(id, frame.position);
        return {};
      case FrameKind::kBye:
        queue.leave(id);
        return {};
      default:
        return bad_input("said hello twice, expected it once");
    }
  });
}

Status FeedGuests::hello(ConsumerId id, Guest& guest, const FeedFrame& frame) {
  if (frame.kind != FrameKind::kHello) return bad_input("said no hello, expected it first");
  REGEN_TRY(check_settings(terms_.settings, frame.text));
  const FeedFrame answer{.kind = FrameKind::kWelcome, .text = terms_.extras};
  if (!guest.socket.send(answer, terms_.memory)) return bad_input("does not listen");
  guest.known = true;
  guest.patience.cancel();
  first_consumer_deadline_.cancel();
  books_.with([&](FeedQueue& queue) {
    if (frame.resumes) {
      queue.add(id, frame.policy, frame.position);
    } else {
      queue.add(id, frame.policy, frame.join);
    }
  });
  guest.reads = true;
  mark_.add_reader(guest.socket.other_process());
  return {};
}

void FeedGuests::forget_reader(Guest& guest) {
  if (std::exchange(guest.reads, false)) mark_.remove_reader(guest.socket.other_process());
}

void FeedGuests::close(ConsumerId id) {
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  const Shared guest = found->second;
  guests_.erase(found);
  asio::error_code ignored;
  guest->readable.close(ignored);
  guest->process = {};
  guest->patience.cancel();
  forget_reader(*guest);
  if (guest->known) books_.with([id](FeedQueue& queue) { queue.remove(id); });
  settle();
}

}  // namespace regen::share
