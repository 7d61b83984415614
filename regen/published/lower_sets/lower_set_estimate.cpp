#include "regen/published/lower_sets/lower_set_estimate.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

}  // namespace

LowerSetEstimate::LowerSetEstimate(const LowerSetBlocks& blocks, const LowerSetFamily& family)
    : blocks_(blocks), nodes_(blocks.nodes()), family_(family) {
  find_later();
  find_backward();
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    droppable_.push_back(blocks.droppable(node));
  }
  for (std::size_t set = 0; set < family.size(); ++set) {
    std::uint32_t size = 0;
    double cost = 0;
    Bytes later = 0;
    for (std::size_t w = 0; w < family[set].size(); ++w) {
      for (std::uint64_t left = family[set][w]; left != 0; left &= left - 1) {
        const std::size_t node = 64 * w + static_cast<std::size_t>(std::countr_zero(left));
        if (blocks_.droppable(static_cast<std::uint32_t>(node))) cost += nodes_.costs[node];
        later += later_[node];
        ++size;
      }
    }
    size_.push_back(size);
    later_of_.push_back(later);
    cost_.push_back(cost);
  }
}

void LowerSetEstimate::find_later() {
  const Graph& graph = blocks_.graph();
  const auto after = [&](OpId op) { return nodes_.place[op] == LowerSetNodes::kNone; };
  for (OpId op : nodes_.ops) {
    Bytes bytes = 0;
    for (TensorId t : graph.makes(search::base_variant(graph, op))) {
      const bool read =
          graph.kind(t) == TensorKind::kOutput || std::ranges::any_of(graph.consumers(t), after);
      if (read) bytes += graph.bytes(t);
    }
    later_.push_back(bytes);
  }
}

// What the ops after the forward pass make, released at its last use, in the order of ids; an op
// counts where the highest node is that it, or one before it, reads.
void LowerSetEstimate::find_backward() {
  const Graph& graph = blocks_.graph();
  IdVector<TensorId, std::uint32_t> readers(graph.num_tensors(), 0);
  for (OpId op : blocks_.rest()) {
    for (TensorId t : graph.reads(search::base_variant(graph, op))) ++readers[t];
  }
  backward_.assign(nodes_.size() + 1, 0);
  Bytes live = 0;
  std::size_t place = nodes_.size();
  for (OpId op : blocks_.rest()) {
    const VariantId variant = search::base_variant(graph, op);
    std::uint32_t highest = kNone;
    for (TensorId t : graph.reads(variant)) {
      const OpId maker = graph.producer(t);
      const std::uint32_t node = maker.valid() ? nodes_.place[maker] : kNone;
      if (node != kNone && (highest == kNone || node > highest)) highest = node;
    }
    if (highest != kNone) place = std::min<std::size_t>(place, highest + 1);
    for (TensorId t : graph.makes(variant)) live += graph.bytes(t);
    // A sum of gradients can take the place of one of its parts.
    const bool in_place = std::ranges::any_of(
        graph.variants(op), [&](VariantId v) { return graph.overwrites(v).valid(); });
    const Bytes during =
        live + graph.workspace(variant) - (in_place ? graph.bytes(graph.makes(variant)[0]) : 0);
    backward_[place] = std::max(backward_[place], during);
    for (TensorId t : graph.reads(variant)) {
      const OpId maker = graph.producer(t);
      if (graph.fixed(t) || !maker.valid() || nodes_.place[maker] != kNone) continue;
      if (--readers[t] == 0) live -= graph.bytes(t);
    }
    for (TensorId t : graph.makes(variant)) {
      const bool unread = readers[t] == 0 && graph.kind(t) != TensorKind::kOutput;
      if (unread) live -= graph.bytes(t);
    }
  }
}

// What of the block between the sets stays.
LowerSetEstimate::Kept LowerSetEstimate::kept(std::uint32_t from, std::uint32_t to) const {
  Kept sum;
  const auto small = family_[from];
  for (const auto& member : family_.boundary(to)) {
    if (has_node(small, member.node)) continue;
    sum.bytes += later_[member.node];
    if (blocks_.droppable(member.node)) sum.cost += nodes_.costs[member.node];
  }
  // What only a re-run reads is kept for it.
  const auto large = family_[to];
  const auto outside = [&](std::uint32_t reader) { return !has_node(large, reader); };
  const auto runs_again = [&](std::uint32_t reader) {
    return has_node(large, reader) && !has_node(small, reader) && blocks_.droppable(reader) &&
           std::ranges::none_of(nodes_.successors[reader], outside);
  };
  for (const auto& member : family_.boundary(from)) {
    if (later_[member.node] > 0) continue;
    if (std::ranges::any_of(nodes_.successors[member.node], runs_again)) {
      sum.bytes += nodes_.bytes[member.node];
    }
  }
  return sum;
}

class LowerSetEstimate::Search {
 public:
  Search(const LowerSetEstimate& estimate, const EstimateOptions& options, Effort& effort)
      : estimate_(estimate),
        family_(estimate.family_),
        options_(options),
        budget_(options.budget),
        scale_(static_cast<double>(options.buckets) / static_cast<double>(budget_ + 1)),
        effort_(effort),
        waiting_(family_.size()),
        bound_(estimate.later_, estimate.nodes_.costs, estimate.droppable_),
        best_(options.cost_below) {}

  std::optional<std::vector<std::uint32_t>> run();

 private:
  // By bucket of held bytes the cheapest, its cost infinite where there is none.
  using Front = std::vector<State>;

  void settle(std::uint32_t set);
  void leave(std::uint32_t set, std::size_t first);
  void offer(std::uint32_t to, const State& state);

  const LowerSetEstimate& estimate_;
  const LowerSetFamily& family_;
  const EstimateOptions& options_;
  Bytes budget_;
  double scale_;
  Effort& effort_;
  std::vector<Front> waiting_;
  std::vector<State> states_;
  DropBound bound_;
  double best_;
  std::uint32_t best_state_ = kNone;
};

void LowerSetEstimate::Search::offer(std::uint32_t to, const State& state) {
  Front& front = waiting_[to];
  if (front.empty())
    front.assign(options_.buckets, {.cost = std::numeric_limits<double>::infinity()});
  const auto bucket = static_cast<std::size_t>(static_cast<double>(state.held) * scale_);
  State& known = front[bucket];
  if (state.cost < known.cost || (state.cost == known.cost && state.held < known.held)) {
    known = state;
  }
}

// Fewer held bytes come first; a state stays if it is cheaper than all before it and, with what it
// must still drop at least, than the best chain.
void LowerSetEstimate::Search::settle(std::uint32_t set) {
  if (waiting_[set].empty()) return;
  double least = best_;
  const bool bounded = best_ < std::numeric_limits<double>::infinity();
  if (bounded) bound_.prepare(family_[set]);
  for (const State& state : waiting_[set]) {
    if (state.cost >= least) continue;
    if (bounded && state.cost + bound_.cost_of(state.held + bound_.bytes() - budget_) >= best_) {
      continue;
    }
    least = state.cost;
    states_.push_back(state);
    states_.back().set = set;
  }
  waiting_[set] = {};
}

void LowerSetEstimate::Search::leave(std::uint32_t set, std::size_t first) {
  const std::size_t end = states_.size();
  const auto whole = static_cast<std::uint32_t>(family_.size() - 1);
  const std::uint32_t start = estimate_.size_[set];
  Bytes most = 0;
  int refused = 0;
  std::uint32_t place = start;
  for (std::uint32_t to = set + 1; to <= whole; ++to) {
    // The places of the nodes added so far; sets that are not nested are close enough.
    for (; place < estimate_.size_[to]; ++place) {
      most = std::max(most, estimate_.backward_[place + 1]);
    }
    const Bytes peak = most + estimate_.later_of_[to] - estimate_.later_of_[set];
    if (!family_.includes(to, set)) continue;
    if (states_[first].held + peak > budget_) {
      if (++refused > 16) return;
      continue;
    }
    effort_.add(1);
    if (to == whole) {
      for (std::size_t i = first; i < end && states_[i].held + peak <= budget_; ++i) {
        if (states_[i].cost >= best_) continue;
        best_ = states_[i].cost;
        best_state_ = static_cast<std::uint32_t>(i);
      }
      return;
    }
    const Kept kept = estimate_.kept(set, to);
    const double cost = estimate_.cost_[to] - estimate_.cost_[set] - kept.cost;
    const Bytes room = budget_ - std::max(peak, kept.bytes);
    for (std::size_t i = first; i < end && states_[i].held <= room; ++i) {
      offer(to, {states_[i].cost + cost, states_[i].held + kept.bytes, to,
                 static_cast<std::uint32_t>(i)});
    }
  }
}

std::optional<std::vector<std::uint32_t>> LowerSetEstimate::Search::run() {
  states_.push_back({});
  leave(0, 0);
  for (std::uint32_t set = 1; set + 1 < family_.size(); ++set) {
    const std::size_t first = states_.size();
    settle(set);
    if (first < states_.size()) leave(set, first);
    if (effort_.exhausted()) return std::nullopt;
  }
  if (best_state_ == kNone) return std::nullopt;
  std::vector<std::uint32_t> chain{static_cast<std::uint32_t>(family_.size() - 1)};
  for (std::uint32_t i = best_state_; i != 0; i = states_[i].parent) {
    chain.push_back(states_[i].set);
  }
  std::ranges::reverse(chain);
  return chain;
}

std::optional<std::vector<std::uint32_t>> LowerSetEstimate::cheapest(const EstimateOptions& options,
                                                                     Effort& effort) const {
  if (options.budget < 0) return std::nullopt;
  return Search(*this, options, effort).run();
}

}  // namespace regen::published
