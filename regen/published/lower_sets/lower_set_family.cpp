#include "regen/published/lower_sets/lower_set_family.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "regen/graph/analysis.h"
#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

void add_node(std::span<std::uint64_t> set, std::uint32_t node) {
  set[node / 64] |= std::uint64_t{1} << (node % 64);
}

void unite(std::span<std::uint64_t> set, std::span<const std::uint64_t> other) {
  for (std::size_t i = 0; i < set.size(); ++i) set[i] |= other[i];
}

bool is_subset(std::span<const std::uint64_t> small, std::span<const std::uint64_t> large) {
  for (std::size_t i = 0; i < small.size(); ++i) {
    if ((small[i] & ~large[i]) != 0) return false;
  }
  return true;
}

std::size_t count(std::span<const std::uint64_t> set) {
  std::size_t sum = 0;
  for (std::uint64_t word : set) sum += static_cast<std::size_t>(std::popcount(word));
  return sum;
}

template <class Visit>
void for_each_node(std::span<const std::uint64_t> set, Visit visit) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    for (std::uint64_t rest = set[i]; rest != 0; rest &= rest - 1) {
      visit(static_cast<std::uint32_t>(64 * i) +
            static_cast<std::uint32_t>(std::countr_zero(rest)));
    }
  }
}

// Finds the number of a set by its words, in an open table over the words of a family.
class SetIndex {
 public:
  SetIndex(const std::vector<std::uint64_t>& words, std::size_t width)
      : words_(words), width_(width), slots_(1024, kFree) {}

  // The number of an equal set, or `fresh` after noting it under that number.
  std::uint32_t find_or_add(std::span<const std::uint64_t> set, std::uint32_t fresh) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    std::size_t slot = place(set);
    if (slots_[slot] == kFree) {
      slots_[slot] = fresh;
      ++used_;
    }
    return slots_[slot];
  }

 private:
  static constexpr std::uint32_t kFree = UINT32_MAX;

  std::span<const std::uint64_t> at(std::uint32_t set) const {
    return {words_.data() + set * width_, width_};
  }
  std::size_t place(std::span<const std::uint64_t> set) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (std::uint64_t word : set) hash = std::rotl((hash ^ word) * 0xff51afd7ed558ccd, 29);
    hash ^= hash >> 32;
    std::size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot] != kFree && !std::ranges::equal(at(slots_[slot]), set)) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }
  void grow() {
    std::vector<std::uint32_t> old = std::move(slots_);
    slots_.assign(old.size() * 2, kFree);
    for (std::uint32_t set : old) {
      if (set != kFree) slots_[place(at(set))] = set;
    }
  }

  const std::vector<std::uint64_t>& words_;
  std::size_t width_;
  std::vector<std::uint32_t> slots_;
  std::size_t used_ = 0;
};

}  // namespace

LowerSetNodes lower_set_nodes(const Graph& graph, bool with_loss) {
  LowerSetNodes nodes;
  const OpGraph order = ordering_graph(graph);
  nodes.place = IdVector<OpId, std::uint32_t>(graph.num_ops(), LowerSetNodes::kNone);
  for (OpId op : graph.ops()) {
    const bool wanted =
        graph.phase(op) == Phase::kForward || (with_loss && graph.phase(op) == Phase::kLoss);
    // What waits for an op outside, a changed parameter say, cannot run in the forward pass.
    if (!wanted || !std::ranges::all_of(order.predecessors[op], [&](OpId before) {
          return nodes.place[before] != LowerSetNodes::kNone;
        })) {
      continue;
    }
    nodes.place[op] = static_cast<std::uint32_t>(nodes.ops.size());
    nodes.ops.push_back(op);
    const VariantId variant = search::base_variant(graph, op);
    nodes.costs.push_back(graph.rerun_cost(variant));
    Bytes bytes = 0;
    for (TensorId t : graph.makes(variant)) bytes += graph.bytes(t);
    nodes.bytes.push_back(bytes);
    std::vector<std::uint32_t> before;
    for (TensorId t : graph.reads(variant)) {
      const OpId maker = graph.producer(t);
      if (maker.valid()) before.push_back(nodes.place[maker]);
    }
    std::ranges::sort(before);
    before.erase(std::unique(before.begin(), before.end()), before.end());
    nodes.predecessors.push_back(std::move(before));
  }
  nodes.successors.resize(nodes.size());
  nodes.ancestors.assign(nodes.size(), SetWords(nodes.words(), 0));
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    add_node(nodes.ancestors[node], node);
    for (std::uint32_t before : nodes.predecessors[node]) {
      nodes.successors[before].push_back(node);
      unite(nodes.ancestors[node], nodes.ancestors[before]);
    }
  }
  nodes.hanging.resize(nodes.size());
  nodes.attached.assign(nodes.size(), 0);
  nodes.closures = nodes.ancestors;
  return nodes;
}

bool attach_sinks(LowerSetNodes& nodes, std::size_t most) {
  const auto is_sink = [](const auto& readers) { return readers.empty(); };
  if (static_cast<std::size_t>(std::ranges::count_if(nodes.successors, is_sink)) <= most) {
    return false;
  }
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    const auto& reads = nodes.predecessors[node];
    if (!nodes.successors[node].empty() || reads.empty()) continue;
    // Whatever else it reads must be there when the last one is.
    const std::uint32_t host = reads.back();
    const auto below_host = [&](std::uint32_t read) {
      return has_node(nodes.ancestors[host], read);
    };
    if (!std::ranges::all_of(reads, below_host)) continue;
    nodes.hanging[host].push_back(node);
    nodes.attached[node] = 1;
  }
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    SetWords& closure = nodes.closures[node];
    for_each_node(nodes.ancestors[node], [&](std::uint32_t member) {
      for (std::uint32_t sink : nodes.hanging[member]) add_node(closure, sink);
    });
  }
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    for (std::uint32_t sink : nodes.hanging[node]) nodes.closures[sink] = nodes.closures[node];
  }
  return true;
}

bool LowerSetFamily::includes(std::size_t large, std::size_t small) const {
  return is_subset((*this)[small], (*this)[large]);
}

// Breadth first, so that sets come in the order of their sizes.
std::optional<LowerSetFamily> LowerSetFamily::all(const LowerSetNodes& nodes, std::size_t max_sets,
                                                  std::size_t max_bytes, Effort& effort) {
  LowerSetFamily family(nodes.words());
  family.complete_ = true;
  const std::size_t width = family.width_;
  SetIndex index(family.words_, width);
  std::vector<std::uint64_t> addable(width, 0);  // for each set, the nodes that may come next
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (nodes.predecessors[node].empty() && !nodes.attached[node]) add_node(addable, node);
  }
  family.words_.assign(width, 0);
  family.bytes_.push_back(0);
  index.find_or_add(family[0], 0);
  SetWords next(width);
  SetWords choices(width);
  for (std::uint32_t set = 0; set < family.size(); ++set) {
    std::copy_n(addable.begin() + static_cast<std::ptrdiff_t>(set * width), width, choices.begin());
    for_each_node(choices, [&](std::uint32_t node) {
      std::ranges::copy(family[set], next.begin());
      add_node(next, node);
      Bytes bytes = family.bytes_[set] + nodes.bytes[node];
      for (std::uint32_t sink : nodes.hanging[node]) {
        add_node(next, sink);
        bytes += nodes.bytes[sink];
      }
      const auto fresh = static_cast<std::uint32_t>(family.size());
      family.words_.insert(family.words_.end(), next.begin(), next.end());
      const std::uint32_t found = index.find_or_add(next, fresh);
      family.above_.push_back(found);
      if (found != fresh) {
        family.words_.resize(fresh * width);
        return;
      }
      family.bytes_.push_back(bytes);
      addable.insert(addable.end(), choices.begin(), choices.end());
      const std::span<std::uint64_t> mine(addable.data() + fresh * width, width);
      mine[node / 64] &= ~(std::uint64_t{1} << (node % 64));
      for (std::uint32_t after : nodes.successors[node]) {
        const auto& before = nodes.predecessors[after];
        const auto inside = [&](std::uint32_t b) { return has_node(next, b); };
        if (!nodes.attached[after] && std::ranges::all_of(before, inside)) add_node(mine, after);
      }
    });
    family.first_above_.push_back(family.above_.size());
    effort.add(1);
    if (family.size() > max_sets || family.size() * width * 16 > max_bytes) return std::nullopt;
    if (set % 1024 == 1023 && effort.exhausted()) return std::nullopt;
  }
  family.find_boundaries(nodes);
  std::vector<SetWords> readers(nodes.size(), SetWords(width, 0));
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    for (std::uint32_t after : nodes.successors[node]) unite(readers[node], nodes.closures[after]);
  }
  for (std::uint32_t set = 0; set < family.size(); ++set) {
    for (auto i = family.first_boundary_[set]; i < family.first_boundary_[set + 1]; ++i) {
      std::ranges::copy(family[set], next.begin());
      unite(next, readers[family.boundary_[i].node]);
      family.boundary_[i].expanded = index.find_or_add(next, 0);
    }
  }
  return family;
}

void LowerSetFamily::find_boundaries(const LowerSetNodes& nodes) {
  for (std::size_t set = 0; set < size(); ++set) {
    const auto members = (*this)[set];
    for_each_node(members, [&](std::uint32_t node) {
      const auto outside = [&](std::uint32_t after) { return !has_node(members, after); };
      if (std::ranges::any_of(nodes.successors[node], outside)) boundary_.push_back({.node = node});
    });
    first_boundary_.push_back(boundary_.size());
  }
}

LowerSetFamily LowerSetFamily::of(const LowerSetNodes& nodes, std::vector<SetWords> sets) {
  std::ranges::sort(sets, [](const SetWords& a, const SetWords& b) {
    const std::size_t size_a = count(a);
    const std::size_t size_b = count(b);
    return size_a != size_b ? size_a < size_b : a < b;
  });
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  LowerSetFamily family(nodes.words());
  for (const SetWords& set : sets) {
    family.words_.insert(family.words_.end(), set.begin(), set.end());
    Bytes bytes = 0;
    for_each_node(set, [&](std::uint32_t node) { bytes += nodes.bytes[node]; });
    family.bytes_.push_back(bytes);
  }
  family.find_boundaries(nodes);
  return family;
}

LowerSetFamily LowerSetFamily::pruned(const LowerSetNodes& nodes) {
  std::vector<SetWords> sets = nodes.closures;
  SetWords whole(nodes.words(), 0);
  sets.push_back(whole);
  for (std::uint32_t node = 0; node < nodes.size(); ++node) add_node(whole, node);
  sets.push_back(std::move(whole));
  return of(nodes, std::move(sets));
}

// A lower set whose boundary is the node v alone consists of ancestors of v and of whole parts of
// the graph that v's ancestors do not lead out of; where the graph is connected, it is the
// ancestors of v with whatever hangs on them alone.
LowerSetFamily LowerSetFamily::cuts(const LowerSetNodes& nodes) {
  LowerSetFamily candidates = pruned(nodes);
  std::vector<SetWords> sets;
  for (std::size_t set = 0; set < candidates.size(); ++set) {
    const bool end = set == 0 || set + 1 == candidates.size();
    if (!end && candidates.boundary(set).size() != 1) continue;
    // Two cuts of a connected graph contain one another; of others the first of each size stays.
    const auto words = candidates[set];
    if (!sets.empty() && !is_subset(sets.back(), words)) continue;
    sets.emplace_back(words.begin(), words.end());
  }
  return of(nodes, std::move(sets));
}

}  // namespace regen::published
