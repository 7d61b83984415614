#include "regen/share/input/feed_client.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "regen/base/text.h"
#include "regen/share/input/feed_mark.h"
#include "regen/share/protocol/file_lock.h"

namespace regen::share {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostLossesInARow = 10;
constexpr Nanoseconds kFirstPause = 1'000'000;
constexpr Nanoseconds kLongestPause = 250'000'000;

Error interrupted_error() {
  return limit_reached("interrupted while waiting for a batch");
}

}  // namespace

FeedLease::FeedLease(std::shared_ptr<FeedConnection> connection, FeedView::Batch batch,
                     std::uint32_t slot, std::uint64_t serial)
    : connection_(std::move(connection)), batch_(std::move(batch)), slot_(slot), serial_(serial) {}

FeedLease::~FeedLease() {
  if (connection_->process != ::getpid()) return;
  connection_->view.restore(batch_);
  (void)connection_->socket.send_when_taken(
      {.kind = FrameKind::kReturn, .slot = slot_, .serial = serial_});
}

FeedClient::FeedClient(const FeedRequest& request, FeedStarter starter, Interrupted interrupted)
    : request_(request), starter_(std::move(starter)), interrupted_(std::move(interrupted)) {}

FeedClient::~FeedClient() {
  leave();
}

Result<FeedClient> FeedClient::attach(const FeedRequest& request, FeedStarter starter,
                                      Interrupted interrupted) {
  FeedClient client(request, std::move(starter), std::move(interrupted));
  REGEN_TRY(client.connect());
  return client;
}

Status FeedClient::connect() {
  const auto began = Clock::now();
  for (Nanoseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    REGEN_ASSIGN(bool connected, connect_once());
    if (connected) return {};
    REGEN_ASSIGN(const bool started, start_producer());
    REGEN_ASSIGN(connected, connect_once());
    if (connected) return {};
    if (started) REGEN_TRY(count_loss());
    const Nanoseconds spent = std::chrono::nanoseconds(Clock::now() - began).count();
    if (spent >= request_.give_up) {
      return limit_reached("no producer of the shared input at " + in_quotes(request_.path) +
                           " has answered for " + format_exact(to_seconds(request_.give_up)) +
                           " s, expected one that does: its job may have said why not");
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
    if (interrupted_ && interrupted_()) return interrupted_error();
  }
}

Result<bool> FeedClient::connect_once() {
  auto socket = FeedSocket::connect(request_.path);
  if (socket.ok()) return say_hello(std::move(socket).value());
  if (socket.error().code == ErrorCode::kMissing) return false;
  return socket.error();
}

Result<bool> FeedClient::say_hello(FeedSocket socket) {
  FeedFrame hello{.kind = FrameKind::kHello,
                  .policy = request_.policy,
                  .join = request_.join,
                  .resumes = next_.has_value(),
                  .position = next_.value_or(Position{}),
                  .text = request_.settings};
  if (!socket.send_when_taken(hello)) return false;
  REGEN_ASSIGN(const std::optional<FeedFrame> answer, receive(socket));
  if (!answer) return false;
  if (answer->kind == FrameKind::kError) return bad_input(on_one_line(answer->text, 2000));
  if (answer->kind != FrameKind::kWelcome) {
    return bad_input("the producer answered hello with frame " +
                     std::to_string(static_cast<int>(answer->kind)) + ", expected 65");
  }
  REGEN_ASSIGN(FeedView view, FeedView::map(socket.take_descriptor()));
  if (!socket.send_when_taken({.kind = FrameKind::kReady})) return false;
  connection_ = std::make_shared<FeedConnection>(FeedConnection{
      std::move(socket), std::move(view), answer->text, static_cast<std::int64_t>(::getpid())});
  return true;
}

// One at a time for each path, so that a lost producer is replaced once. The lock ends with this
// process: a producer that it forked has no part in it, whenever this one is killed.
Result<bool> FeedClient::start_producer() {
  const std::string path = request_.path + ".start";
  ::mkdir(std::filesystem::path(path).parent_path().c_str(), 0700);  // it may be there
  const auto turn = FileLock::take(path);
  if (!turn.ok() && turn.error().code == ErrorCode::kLimit) return false;
  if (!turn.ok()) return bad_input(turn.error().message + ", expected a folder of this user");
  // Meanwhile another consumer may have started one.
  if (FeedSocket::connect(request_.path).ok()) return false;
  REGEN_TRY(starter_(next_.value_or(FeedMark::after_crash(request_.path))));
  return true;
}

Result<std::optional<FeedFrame>> FeedClient::receive(FeedSocket& socket) const {
  while (true) {
    const bool ended = socket.other_process_ended();
    FeedFrame frame;
    REGEN_ASSIGN(const Arrival arrival, socket.receive(frame, false));
    if (arrival == Arrival::kFrame) return std::optional(std::move(frame));
    // Its last words were read before.
    if (arrival == Arrival::kGone || ended) return std::optional<FeedFrame>();
    if (!socket.wait() && interrupted_ && interrupted_()) return interrupted_error();
  }
}

// A producer that this consumer started or used ended. One that always does has a reason.
Status FeedClient::count_loss() {
  if (++losses_in_a_row_ < kMostLossesInARow) return {};
  const Position at = next_.value_or(Position{});
  return limit_reached("the producer of the shared input at " + in_quotes(request_.path) +
                       " ended " + std::to_string(losses_in_a_row_) +
                       " times in a row before batch " + std::to_string(at.index) + " of epoch " +
                       std::to_string(at.epoch) + ", expected a dataset that does not kill it");
}

Status FeedClient::on_loss() {
  connection_.reset();
  ++losses_;
  REGEN_TRY(count_loss());
  return connect();
}

Result<FeedEvent> FeedClient::next() {
  if (!connection_) REGEN_TRY(connect());
  while (true) {
    std::optional<FeedFrame> frame;
    // A call that was interrupted has asked already.
    if (asked_ || connection_->socket.send_when_taken({.kind = FrameKind::kWant})) {
      asked_ = true;
      REGEN_ASSIGN(frame, receive(connection_->socket));
    }
    asked_ = false;
    if (frame) return take(*frame);
    REGEN_TRY(on_loss());
  }
}

Result<FeedEvent> FeedClient::take(const FeedFrame& frame) {
  if (frame.kind == FrameKind::kError) return bad_input(frame.text);
  FeedEvent event{.position = frame.position, .lost = frame.lost};
  if (next_ && frame.position < *next_) {
    return bad_input("the producer sent batch " + std::to_string(frame.position.index) +
                     " of epoch " + std::to_string(frame.position.epoch) + " again");
  }
  losses_in_a_row_ = 0;
  if (frame.kind == FrameKind::kEnd) return event;
  next_ = Position{frame.position.epoch + 1, 0};
  event.kind = FeedItem::Kind::kEpochEnd;
  if (frame.kind == FrameKind::kEpochEnd) return event;
  if (frame.kind != FrameKind::kBatch) return bad_input("the producer said hello twice");
  next_ = Position{frame.position.epoch, frame.position.index + 1};
  event.kind = FeedItem::Kind::kBatch;
  REGEN_ASSIGN(FeedView::Batch batch, connection_->view.batch(frame.slot, frame.serial));
  event.lease =
      std::make_shared<FeedLease>(connection_, std::move(batch), frame.slot, frame.serial);
  const FeedView::Batch& kept = event.lease->batch();
  REGEN_ASSIGN(event.layout, decode_layout(kept.layout, kept.data_bytes));
  return event;
}

Status FeedClient::move(Position next) {
  if (next_ && next < *next_) {
    return bad_input("cannot go back to batch " + std::to_string(next.index) + " of epoch " +
                     std::to_string(next.epoch) + ", expected a later one");
  }
  next_ = next;
  // If the producer is gone, next() sends the new position to the next producer.
  if (connection_)
    (void)connection_->socket.send_when_taken({.kind = FrameKind::kMove, .position = next});
  return {};
}

void FeedClient::leave() {
  if (!connection_ || connection_->process != ::getpid()) return;
  (void)connection_->socket.send_when_taken({.kind = FrameKind::kBye});
  connection_.reset();
}

}  // namespace regen::share
