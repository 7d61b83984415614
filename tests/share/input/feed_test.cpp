// Shared input between real processes that are slow or hostile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "regen/base/random.h"
#include "regen/share/protocol/address.h"
#include "tests/share/input/feed_processes.h"

namespace regen::share {
namespace {

using Kind = FeedItem::Kind;
using ::testing::HasSubstr;

TEST_F(Feed, EveryConsumerGetsTheSameAndEachBatchIsMadeOnce) {
  for (const int consumers : {1, 2, 3}) {
    feed_.board = &new_feed_board();
    feed_.options = {.epochs = 3, .first_consumers = consumers};
    std::vector<Process> readers;
    readers.reserve(static_cast<std::size_t>(consumers));
    for (int i = 0; i < consumers; ++i) readers.emplace_back([&] { return read_all(feed_); });
    for (Process& reader : readers) EXPECT_EQ(reader.wait(), 0);
    EXPECT_EQ(feed_.board->made, 60) << consumers;
    EXPECT_EQ(feed_.board->taken, 60 * consumers);
    EXPECT_EQ(feed_.board->wrong, 0);
    EXPECT_EQ(feed_.board->producers, 1);
    EXPECT_TRUE(eventually([&] { return !lives(feed_.board->producer); }))
        << "nobody is left: the producer ends";
  }
  EXPECT_FALSE(std::filesystem::exists(feed_.path));
}

TEST_F(Feed, ABatchIsNotCopiedAndStaysUntilItIsGivenBack) {
  feed_.slots = 2;
  auto client = attach(feed_);
  ASSERT_TRUE(client.ok()) << client.error().message;
  auto first = client->next();
  auto second = client->next();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(right_batch(*first) && right_batch(*second));
  EXPECT_EQ(second->lease->batch().data - first->lease->batch().data,
            static_cast<std::ptrdiff_t>(first->lease->connection().view.slot_bytes()));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(right_batch(*first)) << "no third batch came in its place";
  const char* place = first->lease->batch().data;
  first->lease.reset();
  auto third = client->next();
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->lease->batch().data, place);
  client->leave();
  EXPECT_TRUE(eventually([&] { return !lives(feed_.board->producer); }));
  EXPECT_TRUE(right_batch(*third)) << "memory outlives its producer";
}

TEST_F(Feed, ASlowConsumerHoldsTheOthersBackOrLosesBatches) {
  feed_.options = {.epochs = 2, .first_consumers = 2};
  for (const SlowPolicy policy : {SlowPolicy::kWait, SlowPolicy::kSkip}) {
    feed_.board = &new_feed_board();
    std::vector<Process> readers;
    readers.emplace_back([&] { return read_all(feed_, {.policy = policy}, 4000); });
    readers.emplace_back([&] { return read_all(feed_, {.policy = policy}); });
    for (Process& reader : readers) EXPECT_EQ(reader.wait(), 0);
    EXPECT_EQ(feed_.board->wrong, 0);
    EXPECT_EQ(feed_.board->made, 40);
    if (policy == SlowPolicy::kWait) {
      EXPECT_EQ(feed_.board->taken, 80);
    }
    if (policy == SlowPolicy::kSkip) {
      EXPECT_LT(feed_.board->taken, 80);
    }
    EXPECT_GE(feed_.board->taken, 40) << "the fast one has all";
    EXPECT_TRUE(eventually([&] { return !lives(feed_.board->producer); }));
  }
}

TEST_F(Feed, AnErrorOfTheDatasetReachesEveryConsumer) {
  feed_.fails_at = 5;
  feed_.options.first_consumers = 2;
  const auto reader = [&] {
    auto client = attach(feed_);
    for (int i = 0; i < 5; ++i) {
      const auto event = client->next();
      if (!event.ok() || event->kind != Kind::kBatch) return 10;
    }
    const auto failed = client->next();
    if (failed.ok()) return 11;
    return failed.error().message == "the dataset raised ValueError: row 7 is bad" ? 0 : 12;
  };
  std::vector<Process> readers;
  readers.reserve(2);
  for (int i = 0; i < 2; ++i) readers.emplace_back(reader);
  for (Process& process : readers) EXPECT_EQ(process.wait(), 0);
  EXPECT_EQ(feed_.board->made, 5);
}

TEST_F(Feed, AnEmptyEpochIsAnError) {
  feed_.length = 0;
  auto client = attach(feed_);
  ASSERT_TRUE(client.ok());
  EXPECT_THAT(client->next().error().message, HasSubstr("epoch 0 has no batch"));
}

TEST_F(Feed, WhoKeepsEveryBatchIsToldSo) {
  feed_.slots = 3;
  feed_.options.patience = 50'000'000;
  auto client = attach(feed_);
  ASSERT_TRUE(client.ok());
  std::vector<FeedEvent> kept;
  kept.reserve(3);
  for (int i = 0; i < 3; ++i) kept.push_back(*client->next());
  EXPECT_THAT(client->next().error().message, HasSubstr("batches in all 3 slots"));
  for (const FeedEvent& event : kept) EXPECT_TRUE(right_batch(event)) << "they are still its own";
}

TEST_F(Feed, OtherSettingsAreRefusedByName) {
  feed_.options.settings = R"({"batch_size":32,"seed":1})";
  auto client = attach(feed_);
  ASSERT_TRUE(client.ok());
  TestFeed other = feed_;
  other.options.settings = R"({"batch_size":64,"seed":1})";
  EXPECT_THAT(attach(other).error().message,
              HasSubstr("has batch_size 32, this job asks for 64, expected the same"));
  other.options.settings = "nonsense";
  EXPECT_THAT(attach(other).error().message, HasSubstr("settings of the consumer"));
  EXPECT_TRUE(client->next().ok()) << "the others notice nothing";
}

TEST_F(Feed, AForkedChildDoesNotGiveBackItsParentsBatches) {
  feed_.slots = 1;
  auto client = attach(feed_);
  auto event = client->next();
  ASSERT_TRUE(event.ok());
  Process child([&] {
    event->lease.reset();
    client->leave();
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(right_batch(*event));
  event->lease.reset();
  EXPECT_EQ(client->next()->position, (Position{0, 1}));
}

// Raw packets of a peer that does not keep to the protocol.
Descriptor raw_socket(const std::string& path) {
  const auto address = socket_address(path);
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(
      ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address), 0);
  return socket;
}

TEST_F(Feed, HostileConsumersTroubleNobody) {
  feed_.options.epochs = 1'000'000;
  feed_.options.patience = 5'000'000'000;
  auto client = attach(feed_);
  ASSERT_TRUE(client.ok());
  const int producer = feed_.board->producer;
  ASSERT_TRUE(client->next().ok());
  const std::size_t before = open_files(producer);
  Random random(8);
  for (int round = 0; round < 1000; ++round) {
    const Descriptor socket = raw_socket(feed_.path);
    std::string packet = encode(FeedFrame{.kind = FrameKind::kHello, .text = "{}"});
    if (round % 2 == 0) {
      const auto at = static_cast<std::size_t>(random.between(0, std::ssize(packet) - 1));
      packet[at] = static_cast<char>(random.between(0, 255));
      packet.resize(static_cast<std::size_t>(random.between(1, std::ssize(packet))));
    }
    (void)::send(socket.number(), packet.data(), packet.size(), MSG_NOSIGNAL);
    for (int i = 0; i < 5; ++i) {
      const std::string more =
          encode(FeedFrame{.kind = static_cast<FrameKind>(random.between(1, 6)),
                           .slot = static_cast<std::uint32_t>(random.between(0, 6)),
                           .serial = static_cast<std::uint64_t>(random.between(0, 50))});
      (void)::send(socket.number(), more.data(), more.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (round % 20 == 0) {
      const auto event = client->next();
      ASSERT_TRUE(event.ok()) << event.error().message;
      if (event->kind == Kind::kBatch) {
        EXPECT_TRUE(right_batch(*event));
      }
    }
  }
  EXPECT_EQ(feed_.board->producer, producer);
  EXPECT_TRUE(eventually([&] { return open_files(producer) == before; }));
}

TEST_F(Feed, ThePermissionsOfTheSocketAreTheDoor) {
  auto client = attach(feed_);
  const auto mode = std::filesystem::status(feed_.path).permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const auto second = FeedServer::open(feed_.path, {});
  ASSERT_FALSE(second.ok()) << "one producer for each path";
  EXPECT_THAT(second.error().message,
              HasSubstr("a producer serves there already (process " +
                        std::to_string(feed_.board->producer) + "), expected another name"));
}

// A producer that sends nonsense.
TEST_F(Feed, HostileProducersAreOneError) {
  Random random(6);
  for (int round = 0; round < 200; ++round) {
    const std::string path = folder_.path("h" + std::to_string(round));
    const auto address = socket_address(path);
    const Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(
        ::bind(listener.number(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address),
        0);
    ASSERT_EQ(::listen(listener.number(), 8), 0);
    std::thread liar([&] {
      FeedSocket guest(Descriptor(::accept(listener.number(), nullptr, nullptr)));
      auto segment = FeedSegment::create(2, 4096);
      (void)segment->fill(0, 1, "\x05garbage", 100);
      (void)guest.send({.kind = FrameKind::kWelcome}, round % 4 == 0 ? -1 : segment->descriptor());
      FeedFrame answer{.kind = static_cast<FrameKind>(random.between(65, 69)),
                       .slot = static_cast<std::uint32_t>(random.between(0, 3)),
                       .serial = static_cast<std::uint64_t>(random.between(0, 2)),
                       .text = "no"};
      (void)guest.send(answer);
      FeedFrame ignored;
      for (Arrival arrival = Arrival::kNothing; arrival != Arrival::kGone;) {
        (void)guest.wait();
        const auto received = guest.receive(ignored, true);
        if (received.ok()) arrival = *received;
      }
    });
    auto client = FeedClient::attach({.path = path, .give_up = 1}, [](Position) -> Status {
      return limit_reached("nobody starts one here");
    });
    if (client.ok()) {
      const auto event = client->next();
      if (event.ok()) {
        EXPECT_NE(event->kind, Kind::kBatch);
      }
      if (!event.ok()) {
        EXPECT_EQ(event.error().message.find('\n'), std::string::npos);
      }
      client->leave();
    } else {
      EXPECT_EQ(client.error().message.find('\n'), std::string::npos);
      ::shutdown(listener.number(), SHUT_RDWR);
    }
    liar.join();
  }
}

}  // namespace
}  // namespace regen::share
