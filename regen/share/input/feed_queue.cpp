#include "regen/share/input/feed_queue.h"

#include <algorithm>
#include <utility>

namespace regen::share {

using Kind = FeedItem::Kind;

FeedQueue::FeedQueue(const Options& options)
    : options_(options), slots_(options.slots), cursor_(options.start) {}

FeedQueue::Consumer& FeedQueue::insert(ConsumerId id, SlowPolicy policy) {
  ++consumers_seen_;
  Consumer& consumer = consumers_[id];
  consumer.policy = policy;
  consumer.next = cursor_;
  return consumer;
}

bool FeedQueue::still_there(const FeedItem& item) const {
  return item.kind != Kind::kBatch || slots_[item.slot].serial == item.serial;
}

void FeedQueue::queue_from(Consumer& consumer, const std::deque<FeedItem>::const_iterator& first) {
  for (auto item = first; item != history_.end(); ++item) {
    if (item->kind == Kind::kBatch) ++slots_[item->slot].references;
    consumer.queue.push_back(*item);
  }
  consumer.next = cursor_;
}

void FeedQueue::add(ConsumerId id, SlowPolicy policy, Join join) {
  Consumer& consumer = insert(id, policy);
  const auto first = std::find_if(history_.begin(), history_.end(), [this](const FeedItem& item) {
    return item.kind == Kind::kBatch && item.position.epoch == cursor_.epoch;
  });
  const Position begins = first == history_.end() ? cursor_ : first->position;
  if (join == Join::kEpoch && begins.index != 0) {
    consumer.next = {cursor_.epoch + 1, 0};
  } else {
    queue_from(consumer, first);
  }
}

void FeedQueue::add(ConsumerId id, SlowPolicy policy, Position next) {
  // The input has begun, under a producer before this one. Others that came then may be dead.
  options_.first_consumers = 0;
  follow(next);
  Consumer& consumer = insert(id, policy);
  consumer.began = true;
  go_to(consumer, next);
}

void FeedQueue::ready(ConsumerId id) {
  if (!std::exchange(consumers_.at(id).ready, true)) ++consumers_ready_;
}

void FeedQueue::move(ConsumerId id, Position next) {
  Consumer& consumer = consumers_.at(id);
  if (consumer.left) return;
  drop_queue(consumer);
  consumer.lost = 0;
  consumer.began = true;
  go_to(consumer, next);
  deliver(id, consumer);
}

void FeedQueue::go_to(Consumer& consumer, Position next) {
  const auto first = std::find_if(history_.begin(), history_.end(),
                                  [next](const FeedItem& item) { return item.position == next; });
  consumer.next = next;
  if (first != history_.end()) queue_from(consumer, first);
}

// Newcomers without a position follow the consumers that have one, and not the other way round:
// otherwise a producer that a newcomer started would begin at the beginning for all.
void FeedQueue::follow(Position next) {
  for (const auto& [id, consumer] : consumers_) {
    if (consumer.began || consumer.left) return;
  }
  for (auto& [id, consumer] : consumers_) {
    drop_queue(consumer);
    consumer.next = next;
  }
}

void FeedQueue::drop_queue(Consumer& consumer) {
  for (const FeedItem& item : consumer.queue) {
    if (item.kind == Kind::kBatch) --slots_[item.slot].references;
  }
  consumer.queue.clear();
}

void FeedQueue::remove(ConsumerId id) {
  Consumer& consumer = consumers_.at(id);
  drop_queue(consumer);
  for (const std::uint32_t slot : consumer.held) --slots_[slot].references;
  consumers_.erase(id);
  std::erase_if(deliveries_, [id](const Delivery& delivery) { return delivery.consumer == id; });
}

void FeedQueue::leave(ConsumerId id) {
  Consumer& consumer = consumers_.at(id);
  drop_queue(consumer);
  consumer.left = true;
  consumer.wanting = false;
}

Status FeedQueue::want(ConsumerId id) {
  Consumer& consumer = consumers_.at(id);
  if (consumer.wanting) return bad_input("asked for a batch twice, expected one request at a time");
  if (consumer.left) return bad_input("asked for a batch after leaving, expected nothing more");
  consumer.wanting = true;
  ready(id);
  deliver(id, consumer);
  return {};
}

Status FeedQueue::give_back(ConsumerId id, std::uint32_t slot, std::uint64_t serial) {
  Consumer& consumer = consumers_.at(id);
  if (!consumer.held.contains(slot) || slots_[slot].serial != serial) {
    return bad_input("gave back batch " + std::to_string(serial) + " of slot " +
                     std::to_string(slot) + ", expected one that it has");
  }
  consumer.held.erase(slot);
  --slots_[slot].references;
  return {};
}

// The least position that a consumer needs.
std::optional<Position> FeedQueue::wanted() const {
  std::optional<Position> least;
  for (const auto& [id, consumer] : consumers_) {
    if (consumer.left || consumer.next.epoch >= options_.epochs) continue;
    least = std::min(least.value_or(consumer.next), consumer.next);
  }
  return least;
}

// The free slot with the oldest batch, so that a newcomer finds many batches.
std::optional<std::uint32_t> FeedQueue::free_slot() {
  std::optional<std::uint32_t> best;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].references > 0) continue;
    if (!best || slots_[slot].serial < slots_[*best].serial) best = slot;
  }
  return best;
}

bool FeedQueue::a_consumer_waits() const {
  return std::any_of(consumers_.begin(), consumers_.end(), [this](const auto& entry) {
    const Consumer& consumer = entry.second;
    return !consumer.left && consumer.queue.empty() && consumer.next == cursor_;
  });
}

// The oldest batch that only waits in queues of consumers that may lose it.
std::optional<std::uint32_t> FeedQueue::take_from_slow() {
  if (!a_consumer_waits()) return std::nullopt;
  for (const FeedItem& item : history_) {
    if (item.kind != Kind::kBatch || !still_there(item)) continue;
    std::vector<Consumer*> losers;
    for (auto& [id, consumer] : consumers_) {
      const auto oldest = oldest_batch(consumer);
      if (consumer.policy != SlowPolicy::kSkip || oldest == consumer.queue.end()) continue;
      if (oldest->serial == item.serial) losers.push_back(&consumer);
    }
    if (losers.size() != slots_[item.slot].references) continue;
    for (Consumer* loser : losers) lose_oldest(*loser);
    slots_[item.slot].references = 0;
    return item.slot;
  }
  return std::nullopt;
}

// Batches that wait in queues further on can be made again, so that a consumer that came back with
// an earlier position need not wait until those ahead of it have read.
std::optional<std::uint32_t> FeedQueue::take_back() {
  if (!a_consumer_waits()) return std::nullopt;
  std::optional<std::uint32_t> slot;
  while (!slot) {
    std::optional<Position> last;
    for (const auto& [id, consumer] : consumers_) {
      for (const FeedItem& item : consumer.queue) {
        if (item.kind != Kind::kBatch || item.position < cursor_) continue;
        last = std::max(last.value_or(item.position), item.position);
      }
    }
    if (!last) break;
    for (auto& [id, consumer] : consumers_) shorten(consumer, *last);
    slot = free_slot();
  }
  return slot;
}

// Its queue ends before the position, and it waits for that.
void FeedQueue::shorten(Consumer& consumer, Position end) {
  while (!consumer.queue.empty() && consumer.queue.back().position >= end) {
    const FeedItem& item = consumer.queue.back();
    if (item.kind == Kind::kBatch) --slots_[item.slot].references;
    consumer.lost += item.lost;
    consumer.next = item.position;
    consumer.queue.pop_back();
  }
}

// The next item reports the loss to the consumer.
void FeedQueue::lose_oldest(Consumer& consumer) {
  const auto oldest = oldest_batch(consumer);
  const std::int64_t lost = oldest->lost + 1;
  const auto after = consumer.queue.erase(oldest);
  (after == consumer.queue.end() ? consumer.lost : after->lost) += lost;
}

// Ends of epochs are never lost.
std::deque<FeedItem>::iterator FeedQueue::oldest_batch(Consumer& consumer) {
  return std::find_if(consumer.queue.begin(), consumer.queue.end(),
                      [](const FeedItem& item) { return item.kind == Kind::kBatch; });
}

std::optional<FeedQueue::Fill> FeedQueue::begin() {
  if (filling_ || !failure_.empty() || consumers_ready_ < options_.first_consumers) return {};
  const std::optional<Position> position = wanted();
  if (!position) return {};
  if (*position != cursor_) {
    cursor_ = *position;
    jumped_ = true;
    history_.clear();
  }
  filling_ = free_slot();
  if (!filling_) filling_ = take_from_slow();
  if (!filling_) filling_ = take_back();
  if (!filling_) return {};
  Slot& slot = slots_[*filling_];
  slot.serial = ++serials_;
  slot.references = 1;  // the filler's
  // The history has no gaps: it begins after the last batch that is no more.
  while (!history_.empty() &&
         std::any_of(history_.begin(), history_.end(),
                     [this](const FeedItem& item) { return !still_there(item); })) {
    history_.pop_front();
  }
  return Fill{*filling_, slot.serial, cursor_, std::exchange(jumped_, false)};
}

// To every consumer with this next position.
void FeedQueue::put(const FeedItem& item) {
  cursor_ = item.kind == Kind::kBatch ? Position{item.position.epoch, item.position.index + 1}
                                      : Position{item.position.epoch + 1, 0};
  history_.push_back(item);
  for (auto& [id, consumer] : consumers_) {
    if (consumer.left || consumer.next != item.position) continue;
    if (item.kind == Kind::kBatch) ++slots_[item.slot].references;
    consumer.queue.push_back(item);
    consumer.queue.back().lost = std::exchange(consumer.lost, 0);
    consumer.next = cursor_;
    deliver(id, consumer);
  }
}

void FeedQueue::publish() {
  const std::uint32_t slot = *std::exchange(filling_, std::nullopt);
  ++published_;
  --slots_[slot].references;
  put({.kind = Kind::kBatch, .position = cursor_, .slot = slot, .serial = slots_[slot].serial});
}

void FeedQueue::end_epoch() {
  --slots_[*std::exchange(filling_, std::nullopt)].references;
  put({.kind = Kind::kEpochEnd, .position = cursor_});
  // A consumer that waits only for the end of the last epoch gets it from want().
  for (auto& [id, consumer] : consumers_) deliver(id, consumer);
}

void FeedQueue::fail(std::string text) {
  if (filling_) --slots_[*std::exchange(filling_, std::nullopt)].references;
  failure_ = std::move(text);
  for (auto& [id, consumer] : consumers_) deliver(id, consumer);
}

std::optional<FeedItem> FeedQueue::next_item(Consumer& consumer) {
  if (!consumer.queue.empty()) {
    FeedItem item = std::move(consumer.queue.front());
    consumer.queue.pop_front();
    return item;
  }
  const std::string& error = consumer.error.empty() ? failure_ : consumer.error;
  if (!error.empty())
    return FeedItem{.kind = Kind::kError, .position = consumer.next, .text = error};
  if (consumer.next.epoch >= options_.epochs) {
    return FeedItem{.kind = Kind::kEnd, .position = consumer.next};
  }
  return std::nullopt;
}

void FeedQueue::deliver(ConsumerId id, Consumer& consumer) {
  if (!consumer.wanting || consumer.left) return;
  std::optional<FeedItem> item = next_item(consumer);
  if (!item) return;
  consumer.wanting = false;
  consumer.began = true;
  if (item->kind == Kind::kBatch) consumer.held.insert(item->slot);
  deliveries_.push_back({id, std::move(*item)});
}

std::vector<FeedQueue::Delivery> FeedQueue::take_deliveries() {
  return std::exchange(deliveries_, {});
}

bool FeedQueue::stuck() const {
  if (filling_) return false;
  std::set<std::uint32_t> held;
  for (const auto& [id, consumer] : consumers_) {
    if (!consumer.held.empty() && !consumer.wanting) return false;
    held.insert(consumer.held.begin(), consumer.held.end());
  }
  return held.size() == slots_.size();
}

void FeedQueue::fail_stuck(const std::string& text) {
  for (auto& [id, consumer] : consumers_) {
    if (consumer.held.empty() || !consumer.wanting) continue;
    consumer.error = text;
    deliver(id, consumer);
  }
}

std::int64_t FeedQueue::active() const {
  return std::count_if(consumers_.begin(), consumers_.end(),
                       [](const auto& entry) { return !entry.second.left; });
}

std::uint32_t FeedQueue::references(std::uint32_t slot) const {
  return slots_[slot].references;
}

}  // namespace regen::share
