// Every system call of a producer of shared input, and of a consumer, fails in turn, in each way that is
// plausible. Every consumer gets every batch, each with its content; where that cannot be, an operation
// fails with one clear line and goes on when it is tried again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/share/faults/injected_process.h"
#include "tests/share/input/feed_processes.h"

namespace regen::share {
namespace {

using Kind = FeedItem::Kind;
using Scope = FailingCalls::Scope;

constexpr int kTries = 2;

class FeedFaults : public Feed {
 protected:
  FeedFaults() {
    feed_.length = 4;
    feed_.slots = 3;
    feed_.options = {.epochs = 2, .first_consumers = 2};
  }
  void begin() const { new (feed_.board) FeedBoard; }
  void expect_all_right(const FailureWindow& window) const {
    SCOPED_TRACE(window.what());
    EXPECT_EQ(feed_.board->wrong, 0);
    const std::int64_t all = 2 * 2 * feed_.length;  // consumers and epochs
    // A consumer that is cut off once it is ready joins where the other one is, which may be at the end.
    const bool joins_later = cuts_off(window) || window.failed_with("EAGAIN");
    EXPECT_GE(feed_.board->taken, joins_later ? all / 2 : all);
    EXPECT_LE(feed_.board->taken, all);
  }
};

// A consumer that was cut off and finds no producer any more is the only consumer of the next one.
Result<FeedClient> attach_again(const TestFeed& feed) {
  const FeedRequest request{.path = feed.path, .settings = feed.options.settings};
  return FeedClient::attach(request, [feed](Position start) {
    TestFeed next = feed;
    if (feed.board->made > 0) next.options.first_consumers = 1;
    return starter_of(next)(start);
  });
}

// As read_all; what fails is tried again.
int read_with_patience(const TestFeed& feed, Found& found) {
  int errors = 0;
  const auto may_try_again = [&](const Error& error) {
    found.say(error.message);
    return ++errors < kTries;
  };
  std::optional<FeedClient> client;
  while (!client) {
    auto attached = attach_again(feed);
    if (attached.ok()) client.emplace(std::move(*attached));
    if (!attached.ok() && !may_try_again(attached.error())) return 10;
  }
  std::optional<Position> next;
  std::shared_ptr<FeedLease> kept;  // one batch is looked at while the next one comes
  while (true) {
    auto event = client->next();
    while (!event.ok() && may_try_again(event.error())) event = client->next();
    if (!event.ok()) return 11;
    if (event->kind == Kind::kEnd) return 0;
    if (next && event->position != *next) return 12;
    next = event->kind == Kind::kBatch ? Position{event->position.epoch, event->position.index + 1}
                                       : Position{event->position.epoch + 1, 0};
    if (event->kind != Kind::kBatch) continue;
    if (!right_batch(*event)) ++feed.board->wrong;
    event->lease->batch().data[0] = 1;  // a consumer may use its batch as it likes
    ++feed.board->taken;
    kept = event->lease;
  }
}

TEST_F(FeedFaults, OfTheProducer) {
  const auto body = [this](FailureWindow& window) {
    begin();
    InjectedProcess producer(window, [this](FailureWindow& own, Found&) {
      return own.during([&] { return produce(feed_); });
    });
    EXPECT_TRUE(eventually([&] { return feed_.board->producers > 0 || producer.has_ended(); }));
    std::vector<Process> consumers;
    consumers.reserve(2);
    for (int i = 0; i < 2; ++i) {
      consumers.push_back(in_time([this] {
        Found& found = *new Found;
        return read_with_patience(feed_, found);
      }));
    }
    for (Process& consumer : consumers) EXPECT_EQ(consumer.wait(), 0);
    const int status = producer.wait();
    SCOPED_TRACE(window.what());
    EXPECT_TRUE(status == 0 || (window.failed() && (status == 3 || status == 4))) << status;
    expect_all_right(window);
    EXPECT_TRUE(eventually([&] { return !lives(feed_.board->producer); }));
  };
  EXPECT_GE(fail_each_call("a producer's life", body, Scope::kAllThreads).total, 150);
}

TEST_F(FeedFaults, OfAConsumer) {
  const auto body = [this](FailureWindow& window) {
    begin();
    InjectedProcess consumer(window, [this](FailureWindow& own, Found& found) {
      return own.during([&] { return read_with_patience(feed_, found); });
    });
    Process other = in_time([this] {
      Found& found = *new Found;
      return read_with_patience(feed_, found);
    });
    EXPECT_EQ(consumer.wait(), 0) << consumer.found().text;
    EXPECT_EQ(other.wait(), 0);
    if (consumer.found().text[0] != '\0') {
      EXPECT_TRUE(is_one_line(consumer.found().text));
    }
    EXPECT_TRUE(eventually([&] { return !lives(feed_.board->producer); }));
    expect_all_right(window);
  };
  EXPECT_GE(fail_each_call("a consumer's life", body).total, 100);
}

}  // namespace
}  // namespace regen::share
