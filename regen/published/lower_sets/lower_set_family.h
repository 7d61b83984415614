// Lower sets of the forward graph: sets of ops that contain whatever their members read. A chain
// of them, from the empty set to all ops, cuts the forward pass into blocks.
//
//   a - b - d      Lower sets: {}, a, ab, ac, abc, abcd. Not abd, since d reads c.
//    \- c -/       Boundary of ab, the members read from outside: a (by c) and b (by d).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "regen/base/limit.h"
#include "regen/graph/graph.h"

namespace regen::published {

using SetWords = std::vector<std::uint64_t>;

// Beyond these a lattice is too large for a planner.
constexpr std::size_t kMaxLowerSets = 2'000'000;
constexpr std::size_t kMaxLatticeBytes = std::size_t{1} << 29;

// The graph whose lower sets are meant: a node is a place in `ops`, and edges go upwards.
struct LowerSetNodes {
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::vector<OpId> ops;                // ascending
  IdVector<OpId, std::uint32_t> place;  // the node of an op, or kNone
  std::vector<std::vector<std::uint32_t>> predecessors;
  std::vector<std::vector<std::uint32_t>> successors;
  std::vector<SetWords> ancestors;  // of each node, with itself
  // Nodes that come with another one, see attach_sinks(); and the ancestors with all these.
  std::vector<std::vector<std::uint32_t>> hanging;
  std::vector<char> attached;
  std::vector<SetWords> closures;
  std::vector<Bytes> bytes;   // what it makes
  std::vector<double> costs;  // of running it again

  std::size_t size() const { return ops.size(); }
  std::size_t words() const { return (ops.size() + 63) / 64; }
};

// The ops of the forward phase that wait for no other; with `loss` those of the loss too, as in the
// published model. Edges follow the base variants.
LowerSetNodes lower_set_nodes(const Graph& graph, bool with_loss);

// Nodes that no other reads, a running average say, double the lower sets each. With more than
// `most` of them, they are bound to come with the last node they read, and the result is true.
bool attach_sinks(LowerSetNodes& nodes, std::size_t most);

inline bool has_node(std::span<const std::uint64_t> set, std::uint32_t node) {
  return (set[node / 64] >> (node % 64) & 1) != 0;
}

// A number of lower sets, smaller ones first; the first is empty, the last has all nodes.
class LowerSetFamily {
 public:
  // A member of a set that is read from outside, and the smallest set in the family which contains
  // all its readers too: what the set has to become before the member is no longer on a boundary.
  struct Boundary {
    std::uint32_t node = 0;
    std::uint32_t expanded = 0;  // only where complete()
  };

  // All lower sets; nothing when there are more than `max_sets`, they would take more than
  // `max_bytes`, or the effort runs out.
  static std::optional<LowerSetFamily> all(const LowerSetNodes& nodes, std::size_t max_sets,
                                           std::size_t max_bytes, Effort& effort);
  // One for each node, with whatever it needs; the empty set and the whole.
  static LowerSetFamily pruned(const LowerSetNodes& nodes);
  // Those whose boundary is a single node, the empty set and the whole: the places where the
  // whole graph hangs on one value. A chain.
  static LowerSetFamily cuts(const LowerSetNodes& nodes);

  std::size_t size() const { return bytes_.size(); }
  bool complete() const { return complete_; }
  std::span<const std::uint64_t> operator[](std::size_t set) const {
    return {words_.data() + set * width_, width_};
  }
  bool includes(std::size_t large, std::size_t small) const;
  Bytes bytes(std::size_t set) const { return bytes_[set]; }
  std::span<const Boundary> boundary(std::size_t set) const {
    return {boundary_.data() + first_boundary_[set], boundary_.data() + first_boundary_[set + 1]};
  }
  // The sets with one node more; only where complete().
  std::span<const std::uint32_t> above(std::size_t set) const {
    return {above_.data() + first_above_[set], above_.data() + first_above_[set + 1]};
  }

 private:
  friend class LatticeWalk;
  explicit LowerSetFamily(std::size_t width) : width_(width) {}
  static LowerSetFamily of(const LowerSetNodes& nodes, std::vector<SetWords> sets);
  void find_boundaries(const LowerSetNodes& nodes);

  std::size_t width_;
  bool complete_ = false;
  std::vector<std::uint64_t> words_;
  std::vector<Bytes> bytes_;
  std::vector<std::uint64_t> first_boundary_{0};
  std::vector<Boundary> boundary_;
  std::vector<std::uint64_t> first_above_{0};
  std::vector<std::uint32_t> above_;
};

// The sets of a chain; the family must outlive them.
inline std::vector<std::span<const std::uint64_t>> sets_of(
    const LowerSetFamily& family, const std::vector<std::uint32_t>& chain) {
  std::vector<std::span<const std::uint64_t>> sets;
  sets.reserve(chain.size());
  for (std::uint32_t set : chain) sets.push_back(family[set]);
  return sets;
}

// Calls visit(target) -> bool for transitions from one set to larger ones, each target once. In a
// complete family, unless asked for all, only for those that may be better than going through a set
// between: if a set between caches nothing that the target does not cache, the two smaller blocks
// need no more memory than the one large block, and save as much. What remains are the sets
// reached by adding one node and then, again and again, all readers of some node of the block with
// whatever these read. `visit` returns false where no still larger target is wanted.
class TransitionWalk {
 public:
  explicit TransitionWalk(const LowerSetFamily& family, bool all = false)
      : family_(family), all_(all), seen_(family.size(), 0) {}

  template <class Visit>
  void run(std::uint32_t from, Visit visit) {
    ++round_;
    if (!family_.complete()) {
      walk_all(from, visit);
      return;
    }
    const auto start = family_[from];
    for (std::uint32_t to : family_.above(from)) offer(to, visit);
    while (!stack_.empty()) {
      const std::uint32_t set = stack_.back();
      stack_.pop_back();
      if (all_) {
        for (std::uint32_t to : family_.above(set)) offer(to, visit);
        continue;
      }
      for (const LowerSetFamily::Boundary& member : family_.boundary(set)) {
        if (!has_node(start, member.node)) offer(member.expanded, visit);
      }
    }
  }

 private:
  template <class Visit>
  void walk_all(std::uint32_t from, Visit& visit) {
    stack_.clear();  // where larger targets are not wanted
    for (auto to = from + 1; to < family_.size(); ++to) {
      const auto unwanted = [&](std::uint32_t small) { return family_.includes(to, small); };
      if (!family_.includes(to, from) || std::ranges::any_of(stack_, unwanted)) continue;
      if (!visit(to)) stack_.push_back(to);
    }
  }
  template <class Visit>
  void offer(std::uint32_t to, Visit& visit) {
    if (seen_[to] == round_) return;
    seen_[to] = round_;
    if (visit(to)) stack_.push_back(to);
  }

  const LowerSetFamily& family_;
  bool all_;
  std::uint32_t round_ = 0;
  std::vector<std::uint32_t> seen_;  // the round in which a set was offered
  std::vector<std::uint32_t> stack_;
};

}  // namespace regen::published
