#include "regen/plan/pack/pack_problem.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace regen {
namespace {

struct Event {
  std::int64_t time;
  bool begins;
  std::uint32_t lifetime;
};

// Ends come before beginnings at the same moment: lifetimes are half-open.
std::vector<Event> sorted_events(std::span<const Lifetime> lifetimes) {
  std::vector<Event> events;
  events.reserve(2 * lifetimes.size());
  for (std::uint32_t i = 0; i < lifetimes.size(); ++i) {
    if (lifetimes[i].size == 0) continue;
    events.push_back({lifetimes[i].lower, true, i});
    events.push_back({lifetimes[i].upper, false, i});
  }
  std::ranges::sort(events, [](const Event& a, const Event& b) {
    return std::tie(a.time, a.begins, a.lifetime) < std::tie(b.time, b.begins, b.lifetime);
  });
  return events;
}

Bytes round_up(Bytes size, Bytes alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

Bytes common_unit(std::span<const Lifetime> lifetimes, Bytes alignment) {
  Bytes unit = 0;
  for (const Lifetime& item : lifetimes) unit = std::gcd(unit, round_up(item.size, alignment));
  return unit == 0 ? alignment : unit;
}

// Walks through time. A section ends when something dies after something was born.
class Sweep {
 public:
  Sweep(std::span<const Lifetime> lifetimes, Bytes alignment, bool split)
      : lifetimes_(lifetimes), alignment_(alignment), split_(split), place_(lifetimes.size()) {
    problem_.unit = common_unit(lifetimes, alignment);
  }

  PackProblem run() {
    for (const Event& event : sorted_events(lifetimes_)) {
      if (event.begins) {
        begin(event.lifetime);
      } else {
        end(event.lifetime);
      }
    }
    if (!part_.items.empty()) finish_part();
    return std::move(problem_);
  }

 private:
  void begin(std::uint32_t lifetime) {
    const Bytes size = round_up(lifetimes_[lifetime].size, alignment_) / problem_.unit;
    place_[lifetime] = part_.items.size();
    part_.items.push_back({.first = part_.sections, .last = part_.sections, .size = size});
    part_.origin.push_back(lifetime);
    load_ += size;
    part_.max_load = std::max(part_.max_load, load_);
    ++alive_;
    grew_ = true;
  }

  void end(std::uint32_t lifetime) {
    if (grew_) ++part_.sections;
    grew_ = false;
    PackItem& item = part_.items[place_[lifetime]];
    item.last = part_.sections;
    load_ -= item.size;
    --alive_;
    if (alive_ == 0 && split_) finish_part();
  }

  void finish_part() {
    problem_.max_load = std::max(problem_.max_load, part_.max_load);
    problem_.parts.push_back(std::move(part_));
    part_ = {};
  }

  std::span<const Lifetime> lifetimes_;
  Bytes alignment_;
  bool split_;
  std::vector<std::size_t> place_;  // of each lifetime among the items of its part
  PackProblem problem_;
  PackPart part_;
  std::int64_t load_ = 0;
  std::int64_t alive_ = 0;
  bool grew_ = false;
};

}  // namespace

PackProblem make_pack_problem(std::span<const Lifetime> lifetimes, Bytes alignment, bool split) {
  return Sweep(lifetimes, alignment, split).run();
}

std::vector<std::int64_t> section_loads(const PackPart& part) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(part.sections) + 1);
  for (const PackItem& item : part.items) {
    loads[static_cast<std::size_t>(item.first)] += item.size;
    loads[static_cast<std::size_t>(item.last)] -= item.size;
  }
  std::partial_sum(loads.begin(), loads.end(), loads.begin());
  loads.pop_back();
  return loads;
}

}  // namespace regen
