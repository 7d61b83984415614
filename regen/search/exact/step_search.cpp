#include "regen/search/exact/step_search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace regen::search {
namespace {

using Mask = std::uint64_t;  // values or ops, one bit each

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint32_t kNoPart = UINT32_MAX;

constexpr Mask bit(std::size_t i) {
  return Mask{1} << i;
}

template <typename Visit>
void each_bit(Mask mask, Visit visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<std::size_t>(std::countr_zero(mask)));
}

// A copy that had not ended when the compute queue last moved on, or joined since.
struct Flight {
  std::uint8_t value = 0;
  double start = 0;
  double end = 0;
};

// The state of a part, without times.
struct Place {
  std::uint32_t next = 0;  // first runs so far
  Mask device = 0;         // on the device, fetches under way included
  Mask host = 0;           // has a host copy
  Mask last = 0;           // of these, the copy goes with the next read: it was fetched for good
  Mask unused = 0;         // fetched or made again, and not read since: must stay

  bool operator==(const Place&) const = default;
};

struct PlaceHash {
  std::size_t operator()(const Place& place) const {
    std::uint64_t hash = place.next;
    for (const Mask mask : {place.device, place.host, place.last, place.unused}) {
      hash = (hash ^ mask) * 0x9e3779b97f4a7c15ULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

struct Part {
  Place place;
  double time = 0;  // when the computes so far have ended
  double cost = 0;  // no list that begins with this part costs less
  std::vector<Flight> out, in;
  // How it came about: values released, then one step.
  std::uint32_t parent = kNoPart;
  Step step;
  Mask released = 0;
  bool superfluous = false;
};

// The graph as masks.
struct Masks {
  // `waits`: runs that only wait for what they read are of use.
  Masks(const StageProblem& of, bool waits) : stages(of), runs_can_wait(waits) {
    for (std::size_t i = 0; i < stages.num_ops; ++i) {
      reads.push_back(mask_of(stages.reads[OpId(i)]));
      makes.push_back(mask_of(stages.makes[OpId(i)]));
    }
    for (std::size_t i = 0; i <= stages.num_ops; ++i) {
      still_read.push_back(read_from(i));
      rerunnable.push_back(rerunnable_at(i));
      useful.push_back(useful_at(i));
      made.push_back(i == 0 ? 0 : made.back() | makes[i - 1]);
    }
    next_reader.assign(stages.num_ops + 1,
                       std::vector<std::size_t>(stages.num_values, stages.num_ops));
    for (std::size_t i = stages.num_ops; i-- > 0;) {
      next_reader[i] = next_reader[i + 1];
      each_bit(reads[i], [&](std::size_t v) { next_reader[i][v] = i; });
    }
    first_costs.assign(stages.num_ops + 1, 0);
    for (std::size_t i = stages.num_ops; i-- > 0;) {
      first_costs[i] = first_costs[i + 1] + stages.first_cost[OpId(i)];
    }
  }

  Bytes bytes(Mask values) const {
    Bytes sum = 0;
    each_bit(values, [&](std::size_t v) { sum += stages.bytes[ValueId(v)]; });
    return sum;
  }
  std::size_t producer(std::size_t v) const { return stages.producer[ValueId(v)]; }

  const StageProblem& stages;
  const bool runs_can_wait;
  std::vector<Mask> reads, makes;  // by op
  // By the number of first runs so far: values that can be of use, those that a first run to come
  // reads or that must be there at the end, ops that may run again, and values made.
  std::vector<Mask> useful, still_read, rerunnable, made;
  std::vector<double> first_costs;  // of all first runs to come
  // By the same and value: the first of them that reads it, else the number of ops.
  std::vector<std::vector<std::size_t>> next_reader;

 private:
  static Mask mask_of(std::span<const ValueId> values) {
    Mask mask = 0;
    for (ValueId v : values) mask |= bit(v.index());
    return mask;
  }
  Mask useful_at(std::size_t next) const {
    Mask mask = 0;
    if (runs_can_wait) {
      mask = still_read[next];
      each_bit(rerunnable[next], [&](std::size_t op) { mask |= reads[op]; });
      return mask;
    }
    for (ValueId v : IdRange<ValueId>(stages.num_values)) {
      const bool useful_now =
          next < stages.num_ops ? stages.useful_until[v] >= next : stages.useful_behind[v] != 0;
      if (useful_now) mask |= bit(v.index());
    }
    return mask;
  }
  Mask read_from(std::size_t next) const {
    Mask mask = 0;
    for (ValueId v : IdRange<ValueId>(stages.num_values)) {
      if (stages.output[v]) mask |= bit(v.index());
    }
    for (std::size_t i = next; i < stages.num_ops; ++i) mask |= reads[i];
    return mask;
  }
  Mask rerunnable_at(std::size_t next) const {
    Mask mask = 0;
    for (OpId op : IdRange<OpId>(std::min(next, stages.num_ops))) {
      const bool in_time =
          next < stages.num_ops ? stages.rerun_until[op] >= next : stages.rerun_behind[op] != 0;
      if (runs_can_wait ? stages.can_run_again(op, next) : in_time) mask |= bit(op.index());
    }
    return mask;
  }
};

class StepSearch {
 public:
  StepSearch(const Problem& problem, const StageProblem& stages, double cutoff,
             std::size_t most_parts, Effort& effort)
      : problem_(problem),
        stages_(stages),
        masks_(stages, problem.host_budget.has_value()),
        budget_(*problem.budget - stages.fixed_bytes),
        moves_(problem.link.can_move() && problem.host_budget.value_or(1) > 0),
        cutoff_(cutoff),
        most_parts_(most_parts),
        effort_(effort) {}

  StepSearchAnswer run() {
    keep(Part{.cost = masks_.first_costs[0]});
    while (!open_.empty()) {
      const auto [cost, last, index] = open_.top();
      if (parts_[index].superfluous) {
        open_.pop();
        continue;
      }
      if (finished(parts_[index])) return {.bound = cost, .plan = plan_to(index)};
      if (parts_.size() >= most_parts_ || effort_.exhausted()) {
        return {.bound = std::min(cost, cutoff_)};
      }
      open_.pop();
      // A copy, for the vector of parts grows.
      expand(Part(parts_[index]), index);
    }
    return {.bound = cutoff_};
  }

 private:
  struct Open {
    double cost = 0;
    std::uint32_t behind = 0;  // first runs to come: of equal costs the one that is further
    std::uint32_t part = 0;

    bool operator<(const Open& other) const {
      return std::tie(other.cost, other.behind, other.part) < std::tie(cost, behind, part);
    }
  };

  bool finished(const Part& part) const {
    return part.place.next == stages_.num_ops &&
           (masks_.still_read[part.place.next] & ~part.place.device) == 0;
  }

  void expand(const Part& part, std::uint32_t index) {
    effort_.add(64);
    if (part.place.next < stages_.num_ops) compute(part, index, part.place.next);
    each_bit(masks_.rerunnable[part.place.next], [&](std::size_t op) {
      const Mask missing = masks_.makes[op] & ~part.place.device;
      const bool makes_use = (missing & masks_.useful[part.place.next]) != 0;
      if (makes_use || frees_host(part, op)) compute(part, index, op);
    });
    if (!moves_) return;
    each_bit(part.place.device & ~part.place.host & masks_.useful[part.place.next],
             [&](std::size_t v) { offload(part, index, v); });
    each_bit(
        part.place.host & ~part.place.device & ~part.place.last & masks_.useful[part.place.next],
        [&](std::size_t v) { fetch(part, index, v); });
  }

  // A run waits for the fetches of what it reads, and the host copies that were fetched for good go:
  // under a host budget an op may run again for that alone.
  bool frees_host(const Part& part, std::size_t op) const {
    return (masks_.reads[op] & part.place.last) != 0;
  }

  // Steps that take bytes: in every way to make room that gives no value up in vain.
  template <typename Then>
  void with_room(const Part& part, Bytes needed, Mask pinned, Then then) {
    const Bytes missing = masks_.bytes(part.place.device) + needed - budget_;
    if (missing <= 0) {
      then(part, Mask{0});
      return;
    }
    std::vector<std::size_t> candidates;
    each_bit(part.place.device & ~pinned & ~part.place.unused, [&](std::size_t v) {
      if (stages_.bytes[ValueId(v)] > 0 && can_return(part, v)) candidates.push_back(v);
    });
    choose(candidates, 0, missing, 0, [&](Mask chosen) {
      Part after = part;
      release(after, chosen);
      then(after, chosen);
    });
  }

  // All sets that free `missing` bytes and from which nothing can be left out.
  template <typename Then>
  void choose(const std::vector<std::size_t>& candidates, std::size_t from, Bytes missing,
              Mask chosen, const Then& then) {
    if (missing <= 0) {
      bool minimal = true;
      each_bit(chosen, [&](std::size_t v) {
        if (missing + stages_.bytes[ValueId(v)] <= 0) minimal = false;
      });
      if (minimal) then(chosen);
      return;
    }
    for (std::size_t i = from; i < candidates.size(); ++i) {
      choose(candidates, i + 1, missing - stages_.bytes[ValueId(candidates[i])],
             chosen | bit(candidates[i]), then);
    }
  }

  bool can_return(const Part& part, std::size_t v) const {
    if ((part.place.host & ~part.place.last & bit(v)) != 0) return true;
    if ((masks_.still_read[part.place.next] & bit(v)) == 0) return true;
    return (masks_.rerunnable[part.place.next] & bit(masks_.producer(v))) != 0;
  }

  static void release(Part& part, Mask values) {
    for (const Flight& flight : part.out) {
      if ((values & bit(flight.value)) != 0) part.time = std::max(part.time, flight.end);
    }
    part.place.device &= ~values;
  }

  void compute(const Part& part, std::uint32_t index, std::size_t op) {
    const Mask reads = masks_.reads[op];
    const Mask made = masks_.makes[op];
    if ((reads & ~part.place.device) != 0) return;
    const bool first = op == part.place.next;
    const Bytes needed = masks_.bytes(made & ~part.place.device) + stages_.workspace[OpId(op)];
    with_room(part, needed, reads | made, [&](Part after, Mask released) {
      for (const Flight& flight : after.in) {
        if ((reads & bit(flight.value)) != 0) after.time = std::max(after.time, flight.end);
      }
      after.time += first ? stages_.first_cost[OpId(op)] : stages_.rerun_cost[OpId(op)];
      if (!settle(after)) return;
      if (!first && std::popcount(made) == 1 && !frees_host(part, op)) after.place.unused |= made;
      after.place.device |= made;
      after.place.unused &= ~reads;
      after.place.host &= ~(after.place.last & reads);
      after.place.last &= ~reads;
      after.place.next += first ? 1 : 0;
      if (released == 0 && could_be_swapped(part, op, after.place.device)) return;
      forget_useless(after);
      add(std::move(after), index, Step::compute(OpId(op)), released);
    });
  }

  // A re-run that the op right after it does not read could as well run after that op, if memory
  // allows it there and that op has nothing to wait for meanwhile. So re-runs stay behind first
  // runs, and among themselves in the order of ops.
  bool could_be_swapped(const Part& part, std::size_t op, Mask device_after) const {
    if (part.parent == kNoPart || part.step.kind() != StepKind::kCompute) return false;
    const std::size_t before = part.step.op().index();
    const bool first = op == part.place.next;
    const bool before_was_first = part.place.next != parts_[part.parent].place.next;
    if (before_was_first || (masks_.reads[op] & masks_.makes[before]) != 0) return false;
    if (!first && op > before) return false;
    if ((masks_.reads[op] & in_flight(parts_[part.parent].in)) != 0) return false;
    const std::size_t stage = part.place.next + (first ? 1 : 0);
    if ((masks_.rerunnable[stage] & bit(before)) == 0) return false;
    const Mask there = device_after | masks_.makes[before];
    return masks_.bytes(there) + stages_.workspace[OpId(before)] <= budget_;
  }

  void forget_useless(Part& part) const {
    const Mask useful = masks_.useful[part.place.next];
    part.place.device &= useful | in_flight(part.out);
    part.place.unused &= part.place.device;
    // A copy without further use still takes host bytes.
    if (!problem_.host_budget) part.place.host &= useful | in_flight(part.out);
  }

  // Forgets copies that have ended. False if one has not started yet: it could join later.
  static bool settle(Part& part) {
    for (auto* flights : {&part.out, &part.in}) {
      std::erase_if(*flights, [&](const Flight& flight) { return flight.end <= part.time; });
      for (const Flight& flight : *flights) {
        if (flight.start >= part.time && flight.end > flight.start) return false;
      }
    }
    return true;
  }

  static Mask in_flight(const std::vector<Flight>& flights) {
    Mask mask = 0;
    for (const Flight& flight : flights) mask |= bit(flight.value);
    return mask;
  }

  static void join(std::vector<Flight>& queue, std::size_t value, double now, double duration) {
    const double start = queue.empty() ? now : std::max(now, queue.back().end);
    queue.push_back({static_cast<std::uint8_t>(value), start, start + duration});
  }

  void offload(const Part& part, std::uint32_t index, std::size_t v) {
    const Bytes bytes = stages_.bytes[ValueId(v)];
    if (bytes == 0) return;
    if (problem_.host_budget && masks_.bytes(part.place.host) + bytes > *problem_.host_budget) {
      return;
    }
    Part after = part;
    join(after.out, v, after.time, static_cast<double>(bytes) / problem_.link.to_host);
    after.place.host |= bit(v);
    after.place.unused &= ~bit(v);
    add(std::move(after), index, Step::offload(stages_.tensor[ValueId(v)]), 0);
  }

  void fetch(const Part& part, std::uint32_t index, std::size_t v) {
    const Bytes bytes = stages_.bytes[ValueId(v)];
    with_room(part, bytes, 0, [&](Part after, Mask released) {
      if (after.time > part.time && !settle(after)) return;
      join(after.in, v, after.time, static_cast<double>(bytes) / problem_.link.to_device);
      after.place.device |= bit(v);
      after.place.unused |= bit(v);
      const Step step = Step::fetch(stages_.tensor[ValueId(v)]);
      // Dropping a host copy is useful only under a host budget.
      if (problem_.host_budget) {
        Part final_fetch = after;
        final_fetch.place.last |= bit(v);
        add(std::move(final_fetch), index, step, released);
      }
      add(std::move(after), index, step, released);
    });
  }

  void add(Part part, std::uint32_t parent, Step step, Mask released) {
    part.cost = least_cost(part);
    if (part.cost >= cutoff_) return;
    part.parent = parent;
    part.step = step;
    part.released = released;
    keep(std::move(part));
  }

  // The time so far, the first runs to come, and re-runs without which they cannot be: of ops
  // with values that are needed and are neither on the device nor on the host, and their inputs.
  double least_cost(const Part& part) const {
    double cost = part.time + masks_.first_costs[part.place.next];
    if (part.place.next < stages_.num_ops) {
      // A copy that has joined starts before the compute queue has moved on.
      for (const auto* queue : {&part.out, &part.in}) {
        if (queue->empty()) continue;
        cost = std::max(cost, queue->back().start + masks_.first_costs[part.place.next + 1]);
      }
    }
    Mask missing = masks_.still_read[part.place.next] & made_before(part.place.next) &
                   ~part.place.device & ~part.place.host;
    Mask again = 0;
    while (missing != 0) {
      const auto v = static_cast<std::size_t>(std::countr_zero(missing));
      missing &= missing - 1;
      const std::size_t op = masks_.producer(v);
      if ((again & bit(op)) != 0) continue;
      if ((masks_.rerunnable[part.place.next] & bit(op)) == 0) return kInfinity;
      again |= bit(op);
      cost += stages_.rerun_cost[OpId(op)];
      missing |= masks_.reads[op] & ~part.place.device & ~part.place.host;
    }
    cost = std::max(cost, least_cost_of_returns(part));
    if (part.place.next == stages_.num_ops) {
      for (const Flight& flight : part.out) cost = std::max(cost, flight.end);
      for (const Flight& flight : part.in) cost = std::max(cost, flight.end);
    }
    return cost;
  }

  // A value that is needed and only on the host is fetched in time for its reader, or its op runs
  // again.
  double least_cost_of_returns(const Part& part) const {
    double cost = 0;
    const std::uint32_t next = part.place.next;
    const double link_free = part.in.empty() ? part.time : std::max(part.time, part.in.back().end);
    each_bit(masks_.still_read[next] & part.place.host & ~part.place.device, [&](std::size_t v) {
      const auto maker = OpId(masks_.producer(v));
      const double comes =
          link_free + static_cast<double>(stages_.bytes[ValueId(v)]) / problem_.link.to_device +
          masks_.first_costs[masks_.next_reader[next][v]];
      const double again = (masks_.rerunnable[next] & bit(maker.index())) != 0
                               ? part.time + masks_.first_costs[next] + stages_.rerun_cost[maker]
                               : kInfinity;
      cost = std::max(cost, std::min(comes, again));
    });
    return cost;
  }

  Mask made_before(std::size_t next) const { return masks_.made[next]; }

  // Whether b can do nothing that a cannot do as early.
  static bool ahead(const Part& a, const Part& b) {
    if (a.time > b.time) return false;
    const auto no_later = [&](const std::vector<Flight>& of_a, const std::vector<Flight>& of_b) {
      return std::ranges::all_of(of_a, [&](const Flight& flight) {
        double limit = b.time;
        for (const Flight& other : of_b) {
          if (other.value == flight.value) limit = std::max(limit, other.end);
        }
        return flight.end <= limit;
      });
    };
    return no_later(a.out, b.out) && no_later(a.in, b.in);
  }

  bool beaten_at(const Place& place, const Part& part) const {
    const auto rivals = at_.find(place);
    return rivals != at_.end() && std::ranges::any_of(rivals->second, [&](std::uint32_t rival) {
             return ahead(parts_[rival], part);
           });
  }

  // Also by a part with one more value on the device, which can be released at no cost when its
  // bytes are needed, or with one more copy on the host, where bytes are not counted.
  bool beaten(const Part& part) const {
    if (beaten_at(part.place, part)) return true;
    bool found = false;
    const Mask useful = masks_.useful[part.place.next] & made_before(part.place.next);
    each_bit(useful & ~part.place.device, [&](std::size_t v) {
      Place more = part.place;
      more.device |= bit(v);
      found = found || (fits(more.device) && beaten_at(more, part));
      if (!moves_ || problem_.host_budget || (part.place.host & bit(v)) != 0) return;
      more.host |= bit(v);
      found = found || (fits(more.device) && beaten_at(more, part));
    });
    if (!moves_ || problem_.host_budget || found) return found;
    each_bit(useful & ~part.place.host, [&](std::size_t v) {
      Place more = part.place;
      more.host |= bit(v);
      found = found || beaten_at(more, part);
    });
    return found;
  }
  bool fits(Mask device) const { return masks_.bytes(device) <= budget_; }

  void keep(Part part) {
    if (beaten(part)) return;
    std::vector<std::uint32_t>& rivals = at_[part.place];
    std::erase_if(rivals, [&](std::uint32_t rival) {
      const bool beaten = ahead(part, parts_[rival]);
      if (beaten) parts_[rival].superfluous = true;
      return beaten;
    });
    const auto index = static_cast<std::uint32_t>(parts_.size());
    rivals.push_back(index);
    open_.push({part.cost, static_cast<std::uint32_t>(stages_.num_ops) - part.place.next, index});
    parts_.push_back(std::move(part));
  }

  Plan plan_to(std::uint32_t index) const {
    std::vector<std::uint32_t> way;
    for (; parts_[index].parent != kNoPart; index = parts_[index].parent) way.push_back(index);
    Plan plan;
    const auto release = [&](std::size_t v) {
      plan.steps.push_back(Step::release(stages_.tensor[ValueId(v)]));
    };
    Mask device = 0;
    for (auto at = way.rbegin(); at != way.rend(); ++at) {
      const Part& part = parts_[*at];
      each_bit(part.released, release);
      plan.steps.push_back(part.step);
      device &= ~part.released;
      if (part.step.kind() == StepKind::kCompute) {
        device |= masks_.makes[part.step.op().index()];
        each_bit(device & ~part.place.device, release);
      }
      device = part.place.device;
    }
    return plan;
  }

  const Problem& problem_;
  const StageProblem& stages_;
  const Masks masks_;
  const Bytes budget_;
  const bool moves_;
  const double cutoff_;
  const std::size_t most_parts_;
  Effort& effort_;
  std::vector<Part> parts_;
  std::unordered_map<Place, std::vector<std::uint32_t>, PlaceHash> at_;
  std::priority_queue<Open> open_;
};

}  // namespace

bool can_search_steps(const Problem& problem, const StageProblem& stages) {
  return stages.exact && stages.num_ops > 0 && stages.num_ops < 64 && stages.num_values <= 64 &&
         problem.budget.has_value();
}

StepSearchAnswer search_steps(const Problem& problem, const StageProblem& stages, double cutoff,
                              std::size_t most_parts, Effort& effort) {
  return StepSearch(problem, stages, cutoff, most_parts, effort).run();
}

}  // namespace regen::search
