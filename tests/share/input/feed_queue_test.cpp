// The books of a shared input, against a naive record of what each consumer must see.
#include "regen/share/input/feed_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "regen/base/random.h"

namespace regen::share {
namespace {

using Kind = FeedItem::Kind;
using ::testing::HasSubstr;

ConsumerId id(std::size_t number) {
  return ConsumerId(number);
}

// Fills until it has to wait; every epoch has `length` batches.
void fill(FeedQueue& queue, std::int64_t length, int most = 1000) {
  while (most-- > 0) {
    const auto next = queue.begin();
    if (!next) return;
    next->position.index < length ? queue.publish() : queue.end_epoch();
  }
}

std::vector<FeedItem> items_of(FeedQueue& queue, ConsumerId consumer) {
  std::vector<FeedItem> items;
  for (const auto& [to, item] : queue.take_deliveries()) {
    if (to == consumer) items.push_back(item);
  }
  return items;
}

// Asks once; the answer must be there.
FeedItem take(FeedQueue& queue, ConsumerId consumer) {
  EXPECT_TRUE(queue.want(consumer).ok());
  const auto items = items_of(queue, consumer);
  EXPECT_EQ(items.size(), 1u);
  return items.empty() ? FeedItem{.kind = Kind::kError} : items.front();
}

void give_back(FeedQueue& queue, ConsumerId consumer, const FeedItem& item) {
  EXPECT_TRUE(queue.give_back(consumer, item.slot, item.serial).ok());
}

// It says hello and can read at once.
void come(FeedQueue& queue, ConsumerId consumer, SlowPolicy policy, Join join) {
  queue.add(consumer, policy, join);
  queue.ready(consumer);
}

TEST(FeedQueue, NothingIsMadeForNobody) {
  FeedQueue queue({.slots = 2});
  EXPECT_FALSE(queue.begin());
  EXPECT_FALSE(queue.over());
  come(queue, id(1), SlowPolicy::kWait, Join::kNow);
  EXPECT_TRUE(queue.begin());
  queue.remove(id(1));
  EXPECT_TRUE(queue.over());
}

TEST(FeedQueue, ABatchIsMadeOnceAndItsSlotReturnsWithTheLastReader) {
  FeedQueue queue({.slots = 1, .first_consumers = 2});
  come(queue, id(1), SlowPolicy::kWait, Join::kNow);
  EXPECT_FALSE(queue.begin()) << "two are expected";
  come(queue, id(2), SlowPolicy::kWait, Join::kNow);
  fill(queue, 9);
  EXPECT_EQ(queue.published(), 1);
  const FeedItem first = take(queue, id(1));
  EXPECT_EQ(take(queue, id(2)), first);
  EXPECT_EQ(queue.references(0), 2u);
  give_back(queue, id(1), first);
  EXPECT_FALSE(queue.begin());
  give_back(queue, id(2), first);
  EXPECT_EQ(queue.begin()->position, (Position{0, 1}));
}

TEST(FeedQueue, TheDeadGiveBackWhatTheyHeldAndWhatWaitedForThem) {
  FeedQueue queue({.slots = 3});
  come(queue, id(1), SlowPolicy::kWait, Join::kNow);
  come(queue, id(2), SlowPolicy::kWait, Join::kNow);
  fill(queue, 99);
  const FeedItem held = take(queue, id(2));
  for (int i = 0; i < 3; ++i) give_back(queue, id(1), take(queue, id(1)));
  EXPECT_FALSE(queue.begin());
  queue.remove(id(2));
  for (std::uint32_t slot = 0; slot < 3; ++slot) EXPECT_EQ(queue.references(slot), 0u);
  EXPECT_EQ(queue.begin()->slot, held.slot) << "the oldest goes first";
}

TEST(FeedQueue, ANewcomerGetsWhatIsStillThere) {
  FeedQueue queue({.slots = 4});
  come(queue, id(1), SlowPolicy::kWait, Join::kNow);
  fill(queue, 99);
  for (int i = 0; i < 3; ++i) give_back(queue, id(1), take(queue, id(1)));
  fill(queue, 99, 2);  // (0,4) and (0,5) in the place of (0,0) and (0,1)
  come(queue, id(2), SlowPolicy::kWait, Join::kNow);
  EXPECT_EQ(take(queue, id(2)).position, (Position{0, 2})) << "though its first reader is done";
  come(queue, id(3), SlowPolicy::kWait, Join::kEpoch);
  EXPECT_TRUE(queue.want(id(3)).ok());
  EXPECT_TRUE(items_of(queue, id(3)).empty()) << "waits for epoch 1";
  queue.remove(id(1));
  queue.remove(id(2));
  const auto next = queue.begin();
  EXPECT_EQ(next->position, (Position{1, 0})) << "nobody needs the rest of epoch 0";
  EXPECT_TRUE(next->jumped);
}

TEST(FeedQueue, GoesBackForWhoComesBackAndNobodySeesABatchTwice) {
  FeedQueue queue({.slots = 2, .start = {0, 5}});
  queue.add(id(1), SlowPolicy::kWait, Position{0, 5});
  fill(queue, 99, 2);
  const FeedItem five = take(queue, id(1));
  EXPECT_EQ(five.position, (Position{0, 5}));
  give_back(queue, id(1), five);
  queue.add(id(2), SlowPolicy::kWait, Position{0, 4});
  const auto next = queue.begin();
  EXPECT_EQ(next->position, (Position{0, 4}));
  EXPECT_TRUE(next->jumped);
  queue.publish();
  give_back(queue, id(2), take(queue, id(2)));
  std::vector<std::int64_t> seen;
  for (int i = 0; i < 3; ++i) {
    const FeedItem item = take(queue, id(1));
    seen.push_back(item.position.index);
    give_back(queue, id(1), item);
    fill(queue, 99, 2);
    give_back(queue, id(2), take(queue, id(2)));
    fill(queue, 99, 1);
  }
  EXPECT_EQ(seen, (std::vector<std::int64_t>{6, 7, 8}));
}

TEST(FeedQueue, ANewProducerGoesOnWhereTheOldOneWasNotAtTheBeginning) {
  FeedQueue queue({.slots = 2});
  come(queue, id(1), SlowPolicy::kWait, Join::kNow);  // it started the producer
  queue.add(id(2), SlowPolicy::kWait, Position{3, 7});
  EXPECT_EQ(queue.begin()->position, (Position{3, 7}));
  queue.publish();
  EXPECT_EQ(take(queue, id(1)).position, (Position{3, 7}));
}

TEST(FeedQueue, WhoLeavesAnEpochEarlyGoesOnWithTheNext) {
  FeedQueue queue({.slots = 4});
  come(queue, id(1), SlowPolicy::kWait, Join::kNow);
  fill(queue, 99);
  give_back(queue, id(1), take(queue, id(1)));
  queue.move(id(1), {1, 0});
  EXPECT_EQ(queue.begin()->position, (Position{1, 0})) << "the rest is not made for nobody";
  queue.publish();
  EXPECT_EQ(take(queue, id(1)).position, (Position{1, 0}));
}

TEST(FeedQueue, OnlyTheSlowOneLosesAndIsToldHowMany) {
  FeedQueue queue({.slots = 3});
  come(queue, id(1), SlowPolicy::kSkip, Join::kNow);
  come(queue, id(2), SlowPolicy::kSkip, Join::kNow);
  std::vector<std::int64_t> fast;
  for (int i = 0; i < 10; ++i) {
    fill(queue, 99, 1);
    const FeedItem item = take(queue, id(1));
    fast.push_back(item.position.index);
    EXPECT_EQ(item.lost, 0);
    give_back(queue, id(1), item);
  }
  EXPECT_EQ(fast, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const FeedItem slow = take(queue, id(2));
  EXPECT_EQ(slow.position.index, 7) << "three slots: 7, 8, 9";
  EXPECT_EQ(slow.lost, 7);
}

TEST(FeedQueue, NobodyLosesForNobody) {
  FeedQueue queue({.slots = 3});
  come(queue, id(1), SlowPolicy::kSkip, Join::kNow);
  fill(queue, 99);
  EXPECT_EQ(queue.published(), 3) << "alone it is the fastest";
  come(queue, id(2), SlowPolicy::kWait, Join::kNow);
  for (int i = 0; i < 3; ++i) give_back(queue, id(1), take(queue, id(1)));
  EXPECT_FALSE(queue.begin()) << "a waiting consumer loses nothing";
}

TEST(FeedQueue, EndsOfEpochsAndOfAllAreNeverLost) {
  FeedQueue queue({.slots = 2, .epochs = 2});
  come(queue, id(1), SlowPolicy::kSkip, Join::kNow);
  come(queue, id(2), SlowPolicy::kSkip, Join::kNow);
  std::vector<Kind> fast;
  for (int i = 0; i < 7; ++i) {
    fill(queue, 2, 2);
    const FeedItem item = take(queue, id(1));
    fast.push_back(item.kind);
    if (item.kind == Kind::kBatch) give_back(queue, id(1), item);
  }
  EXPECT_EQ(fast, (std::vector<Kind>{Kind::kBatch, Kind::kBatch, Kind::kEpochEnd, Kind::kBatch,
                                     Kind::kBatch, Kind::kEpochEnd, Kind::kEnd}));
  std::vector<Kind> slow;
  do {
    slow.push_back(take(queue, id(2)).kind);
  } while (slow.back() != Kind::kEnd);
  EXPECT_EQ(std::count(slow.begin(), slow.end(), Kind::kEpochEnd), 2);
}

TEST(FeedQueue, AnErrorComesAfterWhatWasMadeBefore) {
  FeedQueue queue({.slots = 4});
  come(queue, id(1), SlowPolicy::kWait, Join::kNow);
  fill(queue, 99, 2);
  (void)queue.begin();
  queue.fail("no such file");
  EXPECT_EQ(take(queue, id(1)).position.index, 0);
  EXPECT_EQ(take(queue, id(1)).position.index, 1);
  EXPECT_EQ(take(queue, id(1)).text, "no such file");
  EXPECT_FALSE(queue.begin());
  come(queue, id(2), SlowPolicy::kWait, Join::kEpoch);
  EXPECT_EQ(take(queue, id(2)).kind, Kind::kBatch) << "the first batches are still there";
}

TEST(FeedQueue, WhoKeepsAllSlotsAndWantsMoreIsStuck) {
  FeedQueue queue({.slots = 2});
  come(queue, id(1), SlowPolicy::kWait, Join::kNow);
  come(queue, id(2), SlowPolicy::kWait, Join::kNow);
  fill(queue, 99);
  (void)take(queue, id(1));
  (void)take(queue, id(1));
  EXPECT_TRUE(queue.want(id(1)).ok());
  EXPECT_TRUE(queue.stuck());
  give_back(queue, id(2), take(queue, id(2)));
  EXPECT_TRUE(queue.stuck());
  queue.fail_stuck("full");
  const auto items = items_of(queue, id(1));
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].text, "full");
}

TEST(FeedQueue, WhoIsBehindDoesNotWaitForThoseAheadToRead) {
  FeedQueue queue({.slots = 3, .first_consumers = 2, .start = {7, 3}});
  queue.add(id(1), SlowPolicy::kWait, Position{7, 3});
  fill(queue, 99);
  const FeedItem held = take(queue, id(1));
  EXPECT_EQ(held.position, (Position{7, 3}));
  queue.add(id(2), SlowPolicy::kWait, Position{7, 1});
  // The other one keeps its batch, and reads on only when this one has come as far (in step).
  for (const std::int64_t index : {1, 2, 3, 4}) {
    ASSERT_TRUE(queue.want(id(2)).ok());
    fill(queue, 99);
    const auto items = items_of(queue, id(2));
    ASSERT_EQ(items.size(), 1u) << index;
    EXPECT_EQ(items[0].position, (Position{7, index}));
    give_back(queue, id(2), items[0]);
  }
  give_back(queue, id(1), held);
  fill(queue, 99);
  EXPECT_EQ(take(queue, id(1)).position, (Position{7, 4})) << "what was taken back was made again";
}

TEST(FeedQueue, TheFirstBatchWaitsForConsumersThatCanRead) {
  FeedQueue queue({.slots = 2, .first_consumers = 2});
  queue.add(id(1), SlowPolicy::kWait, Join::kNow);
  queue.add(id(2), SlowPolicy::kWait, Join::kNow);
  queue.ready(id(1));
  queue.ready(id(1));
  EXPECT_FALSE(queue.begin());
  queue.remove(id(2));  // it could not map the memory, and comes again
  queue.add(id(3), SlowPolicy::kWait, Join::kNow);
  EXPECT_FALSE(queue.begin());
  ASSERT_TRUE(queue.want(id(3)).ok()) << "who asks is ready";
  fill(queue, 9);
  EXPECT_EQ(items_of(queue, id(3)).front().position, (Position{0, 0}));
}

TEST(FeedQueue, FirstConsumersAreNoConditionForWhoHasAPosition) {
  FeedQueue queue({.slots = 2, .first_consumers = 3});
  come(queue, id(1), SlowPolicy::kWait, Join::kNow);
  EXPECT_FALSE(queue.begin());
  queue.add(id(2), SlowPolicy::kWait, Position{1, 2});
  const auto fill = queue.begin();
  ASSERT_TRUE(fill);
  EXPECT_EQ(fill->position, (Position{1, 2}));
}

TEST(FeedQueue, RefusesWhatMakesNoSense) {
  FeedQueue queue({.slots = 2});
  come(queue, id(1), SlowPolicy::kWait, Join::kNow);
  EXPECT_TRUE(queue.want(id(1)).ok());
  EXPECT_THAT(queue.want(id(1)).error().message, HasSubstr("twice"));
  EXPECT_THAT(queue.give_back(id(1), 0, 1).error().message, HasSubstr("expected one that it has"));
  EXPECT_THAT(queue.give_back(id(1), 77, 1).error().message, HasSubstr("slot 77"));
  queue.leave(id(1));
  EXPECT_THAT(queue.want(id(1)).error().message, HasSubstr("after leaving"));
}

// Random comings, goings and deaths. The oracle knows no slots: it only follows each consumer, and
// what the memory would hold.
TEST(FeedQueue, RandomHistories) {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    const auto slots = static_cast<std::uint32_t>(random.between(1, 5));
    const std::int64_t length = random.between(1, 6);
    FeedQueue queue({.slots = slots});
    std::vector<Position> memory(slots);
    struct Seen {
      SlowPolicy policy;
      std::optional<Position> next;
      std::vector<FeedItem> held = {};
      bool wanting = false;
    };
    std::map<ConsumerId, Seen> seen;
    std::map<Position, int> last_of;  // how often each position was made
    std::size_t ids = 0;
    std::optional<FeedQueue::Fill> filling;
    for (int step = 0; step < 200; ++step) {
      const auto action = random.between(0, 9);
      if (action == 0 && seen.size() < 4) {
        const ConsumerId consumer = id(ids++);
        const auto policy = random.between(0, 1) == 0 ? SlowPolicy::kWait : SlowPolicy::kSkip;
        Seen entry{policy, {}};
        if (random.between(0, 3) == 0) {
          entry.next = Position{random.between(0, 3), random.between(0, length - 1)};
          queue.add(consumer, policy, *entry.next);
        } else {
          queue.add(consumer, policy, random.between(0, 1) == 0 ? Join::kNow : Join::kEpoch);
        }
        if (random.between(0, 1) == 0) queue.ready(consumer);
        seen.emplace(consumer, entry);
      } else if (action == 1 && !seen.empty() && random.between(0, 3) == 0) {
        queue.remove(seen.begin()->first);
        seen.erase(seen.begin());
      } else if (action <= 4) {
        if (!filling) filling = queue.begin();
        if (!filling) continue;
        for (const auto& [consumer, entry] : seen) {
          for (const FeedItem& item : entry.held) EXPECT_NE(item.slot, filling->slot);
        }
        memory[filling->slot] = filling->position;
        if (random.between(0, 1) == 0) continue;  // still at it
        ASSERT_LE(filling->position.index, length);
        filling->position.index < length ? queue.publish() : queue.end_epoch();
        filling.reset();
      } else if (action <= 7 && !seen.empty()) {
        auto entry = std::next(seen.begin(), random.between(0, std::ssize(seen) - 1));
        if (!entry->second.wanting) {
          ASSERT_TRUE(queue.want(entry->first).ok());
          entry->second.wanting = true;
        }
      } else if (!seen.empty()) {
        auto entry = std::next(seen.begin(), random.between(0, std::ssize(seen) - 1));
        if (entry->second.held.empty()) continue;
        const FeedItem item = entry->second.held.back();
        entry->second.held.pop_back();
        ASSERT_TRUE(queue.give_back(entry->first, item.slot, item.serial).ok());
      }
      for (const auto& [consumer, item] : queue.take_deliveries()) {
        Seen& entry = seen.at(consumer);
        ASSERT_TRUE(entry.wanting);
        entry.wanting = false;
        if (entry.next) {
          if (item.lost == 0) {
            EXPECT_EQ(item.position, *entry.next);
          }
          EXPECT_GE(item.position, *entry.next);
        }
        if (entry.policy == SlowPolicy::kWait) {
          EXPECT_EQ(item.lost, 0);
        }
        if (item.kind == Kind::kBatch) {
          EXPECT_EQ(memory[item.slot], item.position) << "the slot holds what is said";
          entry.held.push_back(item);
          entry.next = Position{item.position.epoch, item.position.index + 1};
        } else {
          EXPECT_EQ(item.position.index, length);
          entry.next = Position{item.position.epoch + 1, 0};
        }
      }
    }
    if (filling) queue.publish();
    while (!seen.empty()) {
      queue.remove(seen.begin()->first);
      seen.erase(seen.begin());
    }
    for (std::uint32_t slot = 0; slot < slots; ++slot) EXPECT_EQ(queue.references(slot), 0u);
  }
}

}  // namespace
}  // namespace regen::share
