#include "regen/share/input/feed_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "regen/base/json.h"
#include "regen/base/text.h"
#include "regen/share/door.h"
#include "regen/share/input/feed_segment.h"
#include "regen/share/input/feed_wire.h"

namespace regen::share {
namespace {

constexpr std::size_t kMaxConsumers = 1000;

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

class FeedServer::Core {
 public:
  Core(Door door, FeedOptions options)
      : options_(std::move(options)),
        door_(std::move(door)),
        listener_(loop_, ::dup(door_.listener())),
        nobody_(loop_),
        stuck_(loop_),
        queue_({.slots = 1}) {}

  ~Core() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status start(std::uint32_t slots, std::uint64_t slot_bytes, const std::string& extras) {
    REGEN_ASSIGN(FeedSegment segment, FeedSegment::create(slots, slot_bytes));
    segment_.emplace(std::move(segment));
    extras_ = extras;
    queue_ = FeedQueue({.slots = slots,
                        .epochs = options_.epochs,
                        .first_consumers = options_.first_consumers,
                        .start = options_.start});
    wait_for_first();
    accept();
    thread_ = std::thread([this] { loop_.run(); });
    return {};
  }

  std::optional<FeedQueue::Fill> begin() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
      if (finished()) return true;
      fill_ = queue_.begin();
      return fill_.has_value();
    });
    return finished() ? std::nullopt : fill_;
  }

  Result<char*> place(const std::string& layout, std::uint64_t data_bytes) {
    return segment_->fill(fill_->slot, fill_->serial, layout, data_bytes);
  }

  void publish() {
    change([this] { queue_.publish(); });
  }
  void end_epoch() {
    change([this] { queue_.end_epoch(); });
  }
  // The filler has nothing more to do; consumers are told until they leave.
  void fail(const std::string& text) {
    change([&] {
      queue_.fail(text);
      failed_ = true;
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_; });
  }

  const FeedQueue::Fill& fill() const { return *fill_; }
  std::int64_t published() {
    const std::lock_guard lock(mutex_);
    return queue_.published();
  }
  std::int64_t consumers() {
    const std::lock_guard lock(mutex_);
    return queue_.active();
  }
  std::uint64_t slot_bytes() const { return segment_ ? segment_->slot_bytes() : 0; }

 private:
  // A consumer, from its connection on; it counts once it has said hello.
  struct Guest {
    Guest(asio::io_context& loop, FeedSocket connected)
        : socket(std::move(connected)),
          readable(loop, ::dup(socket.number())),
          process(loop),
          patience(loop) {
      if (socket.process() >= 0) process.assign(::dup(socket.process()));
    }
    FeedSocket socket;
    asio::posix::stream_descriptor readable;
    asio::posix::stream_descriptor process;
    asio::steady_timer patience;
    bool known = false;
  };

  bool finished() const { return over_ || failed_; }
  bool over() {
    const std::lock_guard lock(mutex_);
    return over_;
  }

  // Everything that changes the books from the filler's side.
  template <typename Change>
  void change(Change what) {
    {
      const std::lock_guard lock(mutex_);
      what();
    }
    asio::post(loop_, [this] { settle(); });
  }

  // After every change: what is due goes out, and the filler looks again.
  void settle() {
    std::vector<FeedQueue::Delivery> deliveries;
    {
      const std::lock_guard lock(mutex_);
      deliveries = queue_.take_deliveries();
      over_ = over_ || queue_.over();
      watch_for_stuck();
    }
    for (const auto& [id, item] : deliveries) {
      const auto found = guests_.find(id);
      // It reads one answer for each request: a socket that is full has a consumer that cheats.
      if (found != guests_.end() && !found->second->socket.send(frame_of(item))) close(id);
    }
    changed_.notify_all();
  }

  void watch_for_stuck() {
    const bool stuck = queue_.stuck();
    if (stuck == watching_) return;
    watching_ = stuck;
    if (!stuck) {
      stuck_.cancel();
      return;
    }
    stuck_.expires_after(std::chrono::nanoseconds(options_.patience));
    stuck_.async_wait([this](asio::error_code cancelled) {
      if (cancelled) return;
      {
        const std::lock_guard lock(mutex_);
        if (!queue_.stuck()) return;
        queue_.fail_stuck("consumers keep batches in all " + std::to_string(segment_->slots()) +
                          " slots of the shared input while they wait for more, expected fewer "
                          "batches kept (copies of them) or more slots");
      }
      settle();
    });
  }

  void wait_for_first() {
    nobody_.expires_after(std::chrono::nanoseconds(options_.patience));
    nobody_.async_wait([this](asio::error_code cancelled) {
      if (cancelled) return;
      {
        const std::lock_guard lock(mutex_);
        over_ = true;
      }
      changed_.notify_all();
    });
  }

  void accept() {
    listener_.async_wait(
        asio::posix::stream_descriptor::wait_read, [this](asio::error_code failed) {
          if (failed) return;
          Descriptor socket(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC));
          if (socket.valid()) welcome(FeedSocket(std::move(socket)));
          accept();
        });
  }

  void welcome(FeedSocket socket) {
    if (guests_.size() >= kMaxConsumers) {
      (void)socket.send(error_frame("the shared input has " + std::to_string(kMaxConsumers) +
                                    " consumers, expected no more"));
      return;
    }
    const ConsumerId id(next_id_++);
    const auto guest = std::make_shared<Guest>(loop_, std::move(socket));
    guests_.emplace(id, guest);
    if (guest->process.is_open()) {
      guest->process.async_wait(asio::posix::stream_descriptor::wait_read,
                                [this, id, guest](asio::error_code failed) {
                                  if (!failed) close(id);
                                });
    }
    guest->patience.expires_after(std::chrono::nanoseconds(options_.patience));
    guest->patience.async_wait([this, id, guest](asio::error_code cancelled) {
      if (!cancelled && !guest->known) close(id);
    });
    read(id, guest);
  }

  void read(ConsumerId id, const std::shared_ptr<Guest>& guest) {
    guest->readable.async_wait(asio::posix::stream_descriptor::wait_read,
                               [this, id, guest](asio::error_code failed) {
                                 if (failed || !guests_.contains(id)) return;
                                 FeedFrame frame;
                                 const auto arrival = guest->socket.receive(frame, true);
                                 Status done;
                                 if (!arrival.ok()) done = arrival.error();
                                 // Who comes while the last one goes is to look for another
                                 // producer.
                                 const bool late = !guest->known && over();
                                 if (late || (arrival.ok() && *arrival == Arrival::kGone))
                                   return close(id);
                                 if (arrival.ok() && *arrival == Arrival::kFrame)
                                   done = take(id, *guest, frame);
                                 if (!done.ok()) {
                                   (void)guest->socket.send(error_frame(done.error().message));
                                   return close(id);
                                 }
                                 settle();
                                 if (guests_.contains(id)) read(id, guest);
                               });
  }

  Status take(ConsumerId id, Guest& guest, const FeedFrame& frame) {
    if (!guest.known) return hello(id, guest, frame);
    const std::lock_guard lock(mutex_);
    switch (frame.kind) {
      case FrameKind::kWant:
        return queue_.want(id);
      case FrameKind::kReturn:
        return queue_.give_back(id, frame.slot, frame.serial);
      case FrameKind::kMove:
        queue_.move(id, frame.position);
        return {};
      case FrameKind::kBye:
        queue_.leave(id);
        return {};
      default:
        return bad_input("said hello twice, expected it once");
    }
  }

  Status hello(ConsumerId id, Guest& guest, const FeedFrame& frame) {
    if (frame.kind != FrameKind::kHello) return bad_input("said no hello, expected it first");
    REGEN_TRY(check_settings(options_.settings, frame.text));
    const std::lock_guard lock(mutex_);
    const FeedFrame answer{.kind = FrameKind::kWelcome, .text = extras_};
    if (!guest.socket.send(answer, segment_->descriptor())) return bad_input("does not listen");
    guest.known = true;
    guest.patience.cancel();
    nobody_.cancel();
    if (frame.resumes) {
      queue_.add(id, frame.policy, frame.position);
    } else {
      queue_.add(id, frame.policy, frame.join);
    }
    return {};
  }

  void close(ConsumerId id) {
    const auto found = guests_.find(id);
    if (found == guests_.end()) return;
    const std::shared_ptr<Guest> guest = found->second;
    guests_.erase(found);
    guest->readable.close();
    if (guest->process.is_open()) guest->process.close();
    guest->patience.cancel();
    if (guest->known) {
      const std::lock_guard lock(mutex_);
      queue_.remove(id);
    }
    settle();
  }

  FeedOptions options_;
  Door door_;
  asio::io_context loop_;
  asio::posix::stream_descriptor listener_;
  asio::steady_timer nobody_;  // has come yet
  asio::steady_timer stuck_;
  std::optional<FeedSegment> segment_;
  std::string extras_;
  std::map<ConsumerId, std::shared_ptr<Guest>> guests_;
  std::size_t next_id_ = 0;
  bool watching_ = false;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  FeedQueue queue_;
  std::optional<FeedQueue::Fill> fill_;
  bool over_ = false;
  bool failed_ = false;

  std::thread thread_;
};

FeedServer::FeedServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
FeedServer::FeedServer(FeedServer&&) noexcept = default;
FeedServer::~FeedServer() = default;

Result<FeedServer> FeedServer::open(const std::string& path, const FeedOptions& options) {
  REGEN_ASSIGN(Door door, Door::open(path, options.mode, SOCK_SEQPACKET));
  return FeedServer(std::make_unique<Core>(std::move(door), options));
}

Status FeedServer::start(std::uint32_t slots, std::uint64_t slot_bytes, const std::string& extras) {
  return core_->start(slots, slot_bytes, extras);
}

std::optional<FeedQueue::Fill> FeedServer::begin() {
  return core_->begin();
}

Result<char*> FeedServer::place(const std::string& layout, std::uint64_t data_bytes) {
  return core_->place(layout, data_bytes);
}

void FeedServer::publish() {
  core_->publish();
}

Status FeedServer::end_epoch() {
  if (core_->fill().position.index == 0) {
    return bad_input("epoch " + std::to_string(core_->fill().position.epoch) +
                     " has no batch, expected at least one");
  }
  core_->end_epoch();
  return {};
}

void FeedServer::fail(const std::string& text) {
  core_->fail(text);
}

std::int64_t FeedServer::published() const {
  return core_->published();
}

std::int64_t FeedServer::consumers() const {
  return core_->consumers();
}

std::uint64_t FeedServer::slot_bytes() const {
  return core_->slot_bytes();
}

}  // namespace regen::share
