#include "regen/plan/pack/pack_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace regen {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMaxMemory = std::size_t{1} << 16;
constexpr std::size_t kMemoryPerItem = 512;
// Recursion beyond this is given up; parts that the search is meant for stay far below.
constexpr int kMaxDepth = 3000;
constexpr int kSectionRules = 3;
constexpr int kItemRules = 5;
constexpr std::int64_t kStepsPerWork = 1000;

std::uint64_t mix(std::uint64_t value) {
  return Random(value).next();
}

}  // namespace

PackSearch::PackSearch(const PackPart& part, std::int64_t capacity, const PackOptions& options,
                       Effort& effort)
    : part_(part),
      options_(options),
      effort_(effort),
      state_(part, capacity, options.bound),
      offsets_(part.items.size()),
      twin_(part.items.size()),
      keys_(part.items.size()),
      marks_(part.items.size()),
      refuted_(options.remember ? std::min(kMaxMemory, kMemoryPerItem * part.items.size()) : 0),
      random_(part.items.size()) {
  whole_.last = part.sections;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t>, std::uint32_t> newest;
  for (std::uint32_t i = 0; i < part.items.size(); ++i) {
    const PackItem& item = part.items[i];
    whole_.items.push_back(i);
    marks_[i] = mix(i);
    const auto [twin, first] = newest.try_emplace({item.first, item.last, item.size}, i);
    twin_[i] = twin->second;
    twin->second = i;
  }
}

SearchOutcome PackSearch::run(std::int64_t work) {
  end_ = work < kNever - effort_.work() ? effort_.work() + work : kNever;
  while (true) {
    state_.undo(0);
    restart();
    if (!state_.settle(whole_)) return SearchOutcome::kRefuted;
    const SearchOutcome outcome = explore(whole_, 0);
    if (outcome != SearchOutcome::kLimit) return outcome;
    if (out_of_work()) return SearchOutcome::kLimit;
  }
}

// Walks through all pairs of rules, with four tries for each item at first and twice as many
// in each round; from the second round on the preferences are blurred.
void PackSearch::restart() {
  section_rule_ = static_cast<SectionRule>(restarts_ % kSectionRules);
  item_rule_ = static_cast<ItemRule>(restarts_ % kItemRules);
  const std::int64_t round = std::min<std::int64_t>(restarts_ / (kSectionRules * kItemRules), 40);
  const double blur = round == 0 ? 0.0 : 0.3;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    keys_[i] = item_key(part_.items[i]) * (1 + blur * random_.real());
  }
  const std::int64_t tries = 4 * static_cast<std::int64_t>(keys_.size()) << round;
  last_node_ = options_.restart ? nodes_ + tries : kNever;
  ++restarts_;
}

// Most of the work is drawing conclusions; the rest is a few walks over the open items.
void PackSearch::count_work(const PackScope& scope) {
  constexpr std::int64_t kWalks = 16;
  ++nodes_;
  steps_ += kWalks * static_cast<std::int64_t>(scope.items.size());
  const std::int64_t work = nodes_ + (steps_ + state_.steps()) / kStepsPerWork;
  effort_.add(work - counted_);
  counted_ = work;
}

double PackSearch::item_key(const PackItem& item) const {
  const auto size = static_cast<double>(item.size);
  const auto length = static_cast<double>(item.length());
  switch (item_rule_) {
    case ItemRule::kLarge:
      return size;
    case ItemRule::kShort:
      return -length;
    case ItemRule::kLong:
      return length;
    case ItemRule::kWide:
      return size * length;
    case ItemRule::kNarrow:
      return -size * length;
  }
  return 0;
}

SearchOutcome PackSearch::explore(const PackScope& scope, int depth) {
  if (options_.decompose) return explore_each(split(scope), depth);
  const bool done = std::ranges::none_of(scope.items, [&](auto i) { return state_.open(i); });
  return done ? SearchOutcome::kFound : branch(scope, depth);
}

SearchOutcome PackSearch::explore_each(const std::vector<PackScope>& scopes, int depth) {
  const std::size_t mark = state_.mark();
  for (const PackScope& scope : scopes) {
    const SearchOutcome outcome = branch(scope, depth);
    if (outcome == SearchOutcome::kFound) continue;
    state_.undo(mark);
    return outcome;
  }
  return SearchOutcome::kFound;
}

SearchOutcome PackSearch::branch(const PackScope& scope, int depth) {
  count_work(scope);
  if (depth >= kMaxDepth || nodes_ >= last_node_ || out_of_work()) {
    return SearchOutcome::kLimit;
  }
  const Hash key = options_.remember ? hash(scope) : Hash();
  if (options_.remember && memory(key) == key) return SearchOutcome::kRefuted;
  const Place place = choose_place(scope);
  for (const std::uint32_t item : candidates(place.section)) {
    const SearchOutcome outcome = try_item(scope, item, depth);
    if (outcome != SearchOutcome::kRefuted) return outcome;
  }
  const SearchOutcome outcome = try_nothing(scope, place, depth);
  if (outcome == SearchOutcome::kRefuted && options_.remember) memory(key) = key;
  return outcome;
}

SearchOutcome PackSearch::try_item(const PackScope& scope, std::uint32_t item, int depth) {
  const std::size_t mark = state_.mark();
  offsets_[item] = state_.lowest(item);
  SearchOutcome outcome = SearchOutcome::kRefuted;
  if (state_.place(scope, item)) outcome = explore(scope, depth + 1);
  if (outcome != SearchOutcome::kFound) state_.undo(mark);
  return outcome;
}

SearchOutcome PackSearch::try_nothing(const PackScope& scope, const Place& place, int depth) {
  const std::int64_t floor = next_floor(scope, place);
  if (floor == kNever) return SearchOutcome::kRefuted;
  const std::size_t mark = state_.mark();
  SearchOutcome outcome = SearchOutcome::kRefuted;
  if (state_.raise(scope, place.section, floor)) outcome = explore(scope, depth + 1);
  if (outcome != SearchOutcome::kFound) state_.undo(mark);
  return outcome;
}

// The groups of open items that hang together, smallest first.
std::vector<PackScope> PackSearch::split(const PackScope& scope) const {
  std::vector<PackScope> scopes;
  for (const std::uint32_t i : scope.items) {
    if (!state_.open(i)) continue;
    const PackItem& item = part_.items[i];
    if (scopes.empty() || item.first >= scopes.back().last) {
      scopes.push_back({.first = item.first, .last = item.last, .items = {}});
    }
    scopes.back().last = std::max(scopes.back().last, item.last);
    scopes.back().items.push_back(i);
  }
  std::ranges::stable_sort(scopes, {}, [](const PackScope& s) { return s.items.size(); });
  return scopes;
}

// Whether no open item reaches into the section from beside it.
bool PackSearch::is_wall(const PackScope& scope, std::int32_t section) const {
  return section < scope.first || section >= scope.last || state_.left(section) == 0;
}

PackSearch::Place PackSearch::choose_place(const PackScope& scope) const {
  Place best;
  double best_key = std::numeric_limits<double>::infinity();
  for (std::int32_t first = scope.first; first < scope.last;) {
    const std::int64_t floor = state_.floor(first);
    std::int32_t last = first;
    while (!is_wall(scope, last) && state_.floor(last) == floor) ++last;
    if (last == first) {
      ++first;
      continue;
    }
    const bool open_left = !is_wall(scope, first - 1) && state_.floor(first - 1) < floor;
    const bool open_right = !is_wall(scope, last) && state_.floor(last) < floor;
    for (std::int32_t s = first; s < last && !open_left && !open_right; ++s) {
      const double key = section_key(s);
      if (key < best_key) {
        best_key = key;
        best = {.section = s, .first = first, .last = last};
      }
    }
    first = last;
  }
  return best;
}

// The smallest is asked first.
double PackSearch::section_key(std::int32_t section) const {
  constexpr double kFirst = 1e6;
  const std::int64_t floor = state_.floor(section);
  const double items = static_cast<double>(std::ranges::count_if(
      state_.items_over(section), [&](auto i) { return can_rest(i, floor); }));
  const auto slack = static_cast<double>(state_.slack(section));
  switch (section_rule_) {
    case SectionRule::kFewestItems:
      return items * kFirst + slack / state_.weight(section);
    case SectionRule::kWeighted:
      return (items + (slack > 0)) / state_.weight(section);
    case SectionRule::kTightest:
      return slack * kFirst + items;
  }
  return 0;
}

// Of items that are exactly alike only the first open one is tried.
bool PackSearch::can_rest(std::uint32_t item, std::int64_t floor) const {
  return state_.open(item) && state_.lowest(item) == floor &&
         (twin_[item] == item || !state_.open(twin_[item]));
}

std::vector<std::uint32_t> PackSearch::candidates(std::int32_t section) const {
  std::vector<std::uint32_t> items;
  for (const std::uint32_t i : state_.items_over(section)) {
    if (can_rest(i, state_.floor(section))) items.push_back(i);
  }
  std::ranges::sort(
      items, [&](auto a, auto b) { return keys_[a] != keys_[b] ? keys_[a] > keys_[b] : a < b; });
  return items;
}

// The lowest height above the floor where an item over the section can rest: on a neighbour
// of the dip, or on something that is yet to be put into the dip beside the section.
std::int64_t PackSearch::next_floor(const PackScope& scope, const Place& place) const {
  std::int64_t next = kNever;
  if (!is_wall(scope, place.first - 1)) next = std::min(next, state_.floor(place.first - 1));
  if (!is_wall(scope, place.last)) next = std::min(next, state_.floor(place.last));
  for (const std::uint32_t i : scope.items) {
    const PackItem& item = part_.items[i];
    if (item.first >= place.last) break;
    const bool inside = item.first >= place.first && item.last <= place.last;
    const bool beside = item.last <= place.section || item.first > place.section;
    if (!inside || !beside || !state_.open(i)) continue;
    next = std::min(next, state_.floor(place.section) + item.size);
  }
  return next;
}

// What is open and where the floors are says all about what remains to be done.
PackSearch::Hash PackSearch::hash(const PackScope& scope) const {
  Hash hash{static_cast<std::uint64_t>(scope.first) + 1, 1};
  for (std::int32_t s = scope.first; s < scope.last; ++s) {
    const auto section = static_cast<std::uint64_t>(s);
    const auto floor = static_cast<std::uint64_t>(state_.floor(s));
    const std::uint64_t word = mix(mix(section) + floor);
    hash.first += word;
    hash.second += word * word;
  }
  for (const std::uint32_t i : scope.items) {
    if (!state_.open(i)) continue;
    hash.first += marks_[i];
    hash.second += marks_[i] * marks_[i];
  }
  return hash;
}

}  // namespace regen
