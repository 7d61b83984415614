// Shared input whose producers and consumers are killed at any moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "regen/base/random.h"
#include "regen/share/input/feed_mark.h"
#include "tests/share/input/feed_processes.h"

namespace regen::share {
namespace {

using Kind = FeedItem::Kind;
using ::testing::HasSubstr;

TEST_F(Feed, ConsumersMayBeKilledAtAnyMoment) {
  feed_.options.epochs = 1'000'000;
  feed_.length = 7;
  auto client = attach(feed_);
  ASSERT_TRUE(client.ok());
  const int producer = feed_.board->producer;
  const auto read_some = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto event = client->next();
      ASSERT_TRUE(event.ok()) << event.error().message;
      if (event->kind == Kind::kBatch) {
        EXPECT_TRUE(right_batch(*event));
      }
    }
  };
  read_some(5);
  const std::size_t before = open_files(producer);
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    Process victim([&] { return read_all(feed_, {}, round % 3 == 0 ? 300 : 0); });
    std::this_thread::sleep_for(std::chrono::microseconds(random.between(0, 4000)));
    victim.signal(SIGKILL);
    EXPECT_EQ(victim.wait(), 128 + SIGKILL);
    read_some(3);
  }
  read_some(50);
  EXPECT_EQ(feed_.board->wrong, 0);
  EXPECT_EQ(feed_.board->producer, producer) << "the same one all the time";
  EXPECT_TRUE(eventually([&] { return open_files(producer) == before; }));
}

TEST_F(Feed, ProducersMayBeKilledAtAnyMoment) {
  feed_.options.epochs = 1'000'000;
  feed_.length = 50;
  FeedBoard& board = *feed_.board;
  const auto consume = [&](int reader) {
    auto client = attach(feed_);
    if (!client.ok()) return 10;
    const std::size_t before = open_files(::getpid());
    std::optional<Position> next;
    while (board.stop == 0) {
      auto event = client->next();
      if (!event.ok()) return 11;
      if (next && event->position != *next) return 12;
      next = event->kind == Kind::kBatch
                 ? Position{event->position.epoch, event->position.index + 1}
                 : Position{event->position.epoch + 1, 0};
      if (event->kind != Kind::kBatch) continue;
      if (!right_batch(*event)) ++board.wrong;
      ++board.taken_by[reader];
    }
    if (open_files(::getpid()) != before) return 13;
    return feeds_left(::getpid()) == 0 ? 0 : 14;
  };
  std::vector<Process> readers;
  readers.reserve(3);
  for (int i = 0; i < 3; ++i) readers.emplace_back([&, i] { return consume(i); });
  // Every consumer goes on, whichever process was killed.
  const auto all_take = [&](int count) {
    const std::array before{board.taken_by[0].load(), board.taken_by[1].load(),
                            board.taken_by[2].load()};
    return eventually([&] {
      return board.taken_by[0] >= before[0] + count && board.taken_by[1] >= before[1] + count &&
             board.taken_by[2] >= before[2] + count;
    });
  };
  Random random(2);
  for (int kill = 0; kill < 100; ++kill) {
    ASSERT_TRUE(all_take(2)) << "kill " << kill;
    std::this_thread::sleep_for(std::chrono::microseconds(random.between(0, 2000)));
    ::kill(board.producer, SIGKILL);
  }
  EXPECT_TRUE(all_take(50));
  board.stop = 1;
  for (Process& reader : readers) EXPECT_EQ(reader.wait(), 0);
  EXPECT_EQ(board.wrong, 0);
  EXPECT_GE(board.producers, 80) << "some kills may have hit one that was on its way out";
  EXPECT_TRUE(eventually([&] { return !lives(board.producer); }));
}

TEST_F(Feed, BothMayBeKilledTogether) {
  feed_.options.epochs = 1'000'000;
  FeedBoard& board = *feed_.board;
  Process survivor([&] {
    auto client = attach(feed_);
    if (!client.ok()) return 10;
    for (int i = 0; board.stop == 0; ++i) {
      const auto event = client->next();
      if (!event.ok()) return 11;
      if (event->kind == Kind::kBatch && !right_batch(*event)) ++board.wrong;
      ++board.go;
    }
    return 0;
  });
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Process> victims;
    victims.reserve(2);
    for (int i = 0; i < 2; ++i) victims.emplace_back([&] { return read_all(feed_); });
    const int before = board.go;
    ASSERT_TRUE(eventually([&] { return board.go > before + 2; }));
    std::this_thread::sleep_for(std::chrono::microseconds(random.between(0, 3000)));
    if (round % 2 == 0) ::kill(board.producer, SIGKILL);
    for (Process& victim : victims) victim.signal(SIGKILL);
    for (Process& victim : victims) EXPECT_EQ(victim.wait(), 128 + SIGKILL);
  }
  board.stop = 1;
  EXPECT_EQ(survivor.wait(), 0);
  EXPECT_EQ(board.wrong, 0);
}

// Its child may be on its way to be a producer, and may never get there.
TEST_F(Feed, WhoIsKilledWhileItStartsAProducerHoldsNobodyUp) {
  FeedBoard& board = *feed_.board;
  Process first([&] {
    (void)FeedClient::attach({.path = feed_.path}, [&](Position) -> Status {
      const pid_t child = ::fork();
      if (child != 0) board.go = child;
      ::pause();
      return {};
    });
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return board.go != 0; }));
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait(), 128 + SIGKILL);
  Process second([&] { return read_all(feed_); });
  EXPECT_TRUE(eventually([&] { return board.taken > 0; }));
  EXPECT_TRUE(lives(board.go));
  ::kill(board.go, SIGKILL);
}

TEST_F(Feed, AKilledProducerIsReplacedAlthoughItsChildHasItsSocketAndLock) {
  feed_.forks = true;
  FeedBoard& board = *feed_.board;
  Process reader([&] { return read_all(feed_); });
  for (int round = 0; round < 3; ++round) {
    const int before = board.taken;
    ASSERT_TRUE(eventually([&] { return board.taken > before + 2; })) << "round " << round;
    const int child = board.go;
    ::kill(board.producer, SIGKILL);
    // A consumer that comes now finds a socket with a listener that does not answer.
    EXPECT_TRUE(eventually([&] { return board.producers == round + 2; })) << "round " << round;
    EXPECT_TRUE(lives(child));
    ::kill(child, SIGKILL);
  }
  reader.signal(SIGKILL);
  reader.wait();
  ::kill(board.producer, SIGKILL);
  ::kill(board.go, SIGKILL);
}

TEST_F(Feed, WhoHasBegunWaitsForNoOtherConsumers) {
  feed_.options.first_consumers = 2;
  FeedBoard& board = *feed_.board;
  Process survivor([&] { return read_all(feed_, {}, 1000); });
  Process victim([&] { return read_all(feed_, {}, 1000); });
  ASSERT_TRUE(eventually([&] { return board.taken > 4; }));
  victim.signal(SIGKILL);
  ::kill(board.producer, SIGKILL);
  victim.wait();
  const int before = board.taken;
  EXPECT_TRUE(eventually([&] { return board.taken > before + 4; }));
  EXPECT_EQ(board.wrong, 0);
}

TEST_F(Feed, ANewcomersProducerBeginsWhereTheOthersAre) {
  FeedBoard& board = *feed_.board;
  auto survivor = attach(feed_);
  ASSERT_TRUE(survivor.ok());
  for (int i = 0; i < 30 * 21 + 5; ++i) ASSERT_TRUE(survivor->next().ok());
  ::kill(board.producer, SIGKILL);
  ASSERT_TRUE(eventually([&] { return !lives(board.producer); }));
  const int before = board.made;
  auto newcomer = attach(feed_);
  ASSERT_TRUE(newcomer.ok());
  const auto first = newcomer->next();
  ASSERT_TRUE(first.ok());
  ASSERT_GE(first->position, (Position{30, 5})) << "the other would wait for it";
  const auto next = survivor->next();
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->position, (Position{30, 5}));
  EXPECT_EQ(board.producers, 2);
  EXPECT_LE(board.made - before, 3 * static_cast<int>(feed_.slots)) << "not all that was before";
}

TEST_F(Feed, WhenAllWereKilledTheInputBeginsAgain) {
  FeedBoard& board = *feed_.board;
  Process victim([&] { return read_all(feed_); });
  ASSERT_TRUE(eventually([&] { return board.taken > 50; }));
  victim.signal(SIGKILL);
  ::kill(board.producer, SIGKILL);
  victim.wait();
  ASSERT_TRUE(eventually([&] { return !lives(board.producer); }));
  auto client = attach(feed_);
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->next()->position, (Position{0, 0}));
  client->leave();
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(feed_.path + ".mark"); }));
}

TEST_F(Feed, ADamagedMarkSaysNothing) {
  const std::string path = folder_.path("f.mark");
  Random random(4);
  std::string whole;
  {
    FeedMark mark(feed_.path, {3, 4});
    mark.add_reader(::getpid());
    EXPECT_EQ(FeedMark::after_crash(feed_.path), (Position{3, 4}));
    mark.stand_at({5, 6});
    EXPECT_EQ(FeedMark::after_crash(feed_.path), (Position{5, 6}));
    std::ifstream file(path, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(file), {});
    mark.remove_reader(::getpid());
    EXPECT_EQ(FeedMark::after_crash(feed_.path), (Position{})) << "nobody is left";
  }
  EXPECT_FALSE(std::filesystem::exists(path)) << "an end that is no crash";
  for (int round = 0; round < 500; ++round) {
    std::string text = whole;
    for (int i = 0; i < 3; ++i) {
      text[static_cast<std::size_t>(random.between(0, 40))] =
          static_cast<char>(random.between(0, 255));
    }
    if (round % 5 == 0)
      text.resize(static_cast<std::size_t>(random.between(0, std::ssize(text) - 1)));
    std::ofstream(path, std::ios::binary) << text;
    const Position position = FeedMark::after_crash(feed_.path);
    EXPECT_TRUE(position.epoch >= 0 && position.index >= 0);
    if (text.size() < whole.size() || text.substr(0, 8) != whole.substr(0, 8)) {
      EXPECT_EQ(position, (Position{}));
    }
  }
}

TEST_F(Feed, ADatasetThatKillsItsProducersIsGivenUp) {
  FeedBoard& board = *feed_.board;
  auto client = FeedClient::attach({.path = feed_.path}, [&](Position start) {
    TestFeed feed = feed_;
    feed.options.start = start;
    Status started = starter_of(feed)(start);
    // As if batch 0 killed it.
    Process killer([&] {
      ::kill(board.producer, SIGKILL);
      return 0;
    });
    killer.wait();
    return started;
  });
  std::string message = client.ok() ? "" : client.error().message;
  for (int i = 0; i < 20 && message.empty(); ++i) {
    const auto event = client->next();
    if (!event.ok()) message = event.error().message;
  }
  EXPECT_THAT(message, HasSubstr("ended 10 times in a row before batch 0 of epoch 0"));
}

TEST_F(Feed, AKilledConsumerIsNoticedAlthoughItsChildHasItsSocket) {
  feed_.slots = 1;
  feed_.options.first_consumers = 2;
  auto client = attach(feed_);
  int child = 0;
  Process holder([&] {
    auto mine = attach(feed_);
    auto event = mine->next();
    const pid_t copy = ::fork();  // has the socket, too
    if (copy != 0) feed_.board->go = copy;
    ::pause();
    return 0;
  });
  ASSERT_TRUE(client->next().ok());
  ASSERT_TRUE(eventually([&] { return feed_.board->go != 0; }));
  child = feed_.board->go;
  holder.signal(SIGKILL);
  holder.wait();
  const auto second = client->next();
  EXPECT_TRUE(second.ok() && second->position == (Position{0, 1}));
  if (child > 0) ::kill(child, SIGKILL);
}

}  // namespace
}  // namespace regen::share
