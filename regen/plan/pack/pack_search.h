// Systematic search for a packing within a capacity.
//
// Packings are built bottom up. At each step the search picks one section at the bottom of a
// dip and asks what lies there: each open item that fits flat into the dip, or nothing, in which
// case the floor there rises to the next height where anything could rest. Because every lowest
// packing can be pushed down until each item rests on another, these answers are all there are.
//
// Which section is asked and which answer is tried first decides between luck and disaster, so
// the search restarts often, with another pair of rules each time; it keeps what it learned:
// states that were refuted, and sections where branches failed.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "regen/base/limit.h"
#include "regen/base/random.h"
#include "regen/plan/pack/pack_state.h"

namespace regen {

enum class SearchOutcome {
  kFound,
  kRefuted,
  kLimit,
};

class PackSearch {
 public:
  // All references must outlive the search.
  PackSearch(const PackPart& part, std::int64_t capacity, const PackOptions& options,
             Effort& effort);

  // Searches until the answer is known, about `work` is spent or the effort is exhausted. May be
  // called again after kLimit.
  SearchOutcome run(std::int64_t work);

  // One for each item, in units; of use after kFound.
  const std::vector<std::int64_t>& offsets() const { return offsets_; }
  // After kRefuted: no packing is lower than this, which is more than the capacity.
  std::int64_t lower_bound() const { return state_.next_capacity(); }

 private:
  enum class SectionRule { kFewestItems, kWeighted, kTightest };
  enum class ItemRule { kLarge, kShort, kLong, kWide, kNarrow };

  // A section at the bottom of the dip [first, last).
  struct Place {
    std::int32_t section = 0;
    std::int32_t first = 0;
    std::int32_t last = 0;
  };
  using Hash = std::pair<std::uint64_t, std::uint64_t>;

  void restart();
  void count_work(const PackScope& scope);
  bool out_of_work() const { return effort_.work() >= end_ || effort_.exhausted(); }
  double item_key(const PackItem& item) const;
  SearchOutcome explore(const PackScope& scope, int depth);
  SearchOutcome explore_each(const std::vector<PackScope>& scopes, int depth);
  SearchOutcome branch(const PackScope& scope, int depth);
  SearchOutcome try_item(const PackScope& scope, std::uint32_t item, int depth);
  SearchOutcome try_nothing(const PackScope& scope, const Place& place, int depth);

  std::vector<PackScope> split(const PackScope& scope) const;
  bool is_wall(const PackScope& scope, std::int32_t section) const;
  Place choose_place(const PackScope& scope) const;
  double section_key(std::int32_t section) const;
  bool can_rest(std::uint32_t item, std::int64_t floor) const;
  std::vector<std::uint32_t> candidates(std::int32_t section) const;
  std::int64_t next_floor(const PackScope& scope, const Place& place) const;
  Hash hash(const PackScope& scope) const;
  Hash& memory(const Hash& key) { return refuted_[key.first % refuted_.size()]; }

  const PackPart& part_;
  const PackOptions& options_;
  Effort& effort_;
  PackState state_;
  PackScope whole_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::uint32_t> twin_;  // the item before it that is exactly alike, or itself
  std::vector<double> keys_;         // of items: larger ones are tried first
  std::vector<std::uint64_t> marks_;
  std::vector<Hash> refuted_;  // newest state for each place in the table
  Random random_;
  SectionRule section_rule_ = SectionRule::kFewestItems;
  ItemRule item_rule_ = ItemRule::kLarge;
  std::int64_t restarts_ = 0;
  std::int64_t nodes_ = 0;
  std::int64_t last_node_ = 0;  // at which the present attempt is given up
  std::int64_t steps_ = 0;      // besides those of the state
  std::int64_t counted_ = 0;    // work that the effort knows of
  std::int64_t end_ = 0;        // work of the effort at which this run ends
};

}  // namespace regen
