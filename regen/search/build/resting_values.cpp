#include "regen/search/build/resting_values.h"

#include <algorithm>
#include <limits>

#include "regen/search/build/sequence.h"

namespace regen::search {
namespace {

OpId first_op_after_forward(const Graph& graph) {
  for (OpId op : graph.ops()) {
    if (graph.phase(op) != Phase::kForward) return op;
  }
  return OpId::none();
}

// The cost of all ops before each op, and at the end of all.
std::vector<double> elapsed(const Graph& graph) {
  std::vector<double> sums{0};
  for (OpId op : graph.ops()) sums.push_back(sums.back() + graph.cost(base_variant(graph, op)));
  return sums;
}

double copy_cost(const Link& link, Bytes bytes) {
  if (!link.can_move()) return std::numeric_limits<double>::infinity();
  return static_cast<double>(bytes) * (1 / link.to_host + 1 / link.to_device);
}

}  // namespace

// What it takes to have an op's values again once the forward pass is over. An op that two ops of
// the chain read counts twice, so that both numbers are upper limits.
struct RestingValues::Chain {
  bool possible = false;
  std::size_t ops = 0;
  double cost = 0;
};

RestingValues::RestingValues(const Graph& graph)
    : graph_(graph),
      turn_(first_op_after_forward(graph)),
      repeatable_(repeatable_ops(graph, /*forward_only=*/true)),
      used_after_turn_(graph.num_tensors(), 0),
      worth_(graph.num_tensors(), 0) {
  if (!turn_.valid()) return;
  const std::vector<double> time = elapsed(graph);
  IdVector<TensorId, OpId> last_use(graph.num_tensors());
  for (OpId op : graph.ops()) {
    const VariantId variant = base_variant(graph, op);
    for (TensorId t : graph.makes(variant)) {
      last_use[t] = op;
      used_after_turn_[t] = graph.kind(t) == TensorKind::kOutput;
    }
    for (TensorId t : graph.reads(variant)) {
      if (graph.fixed(t)) continue;
      if (op >= turn_ && last_use[t] < turn_ && !used_after_turn_[t]) {
        const bool others_between = op.index() - last_use[t].index() > 1;
        const double rest = time[op.index()] - time[last_use[t].index() + 1];
        // Ops may cost nothing; a value that rests beside them is still worth something.
        if (others_between) {
          worth_[t] = static_cast<double>(graph.bytes(t)) *
                      std::max(rest, std::numeric_limits<double>::min());
        }
      }
      if (op >= turn_) used_after_turn_[t] = 1;
      last_use[t] = op;
    }
  }
}

Bytes RestingValues::resting_bytes(OpId op) const {
  Bytes sum = 0;
  for (TensorId t : graph_.makes(base_variant(graph_, op))) {
    if (rests(t)) sum += graph_.bytes(t);
  }
  return sum;
}

double RestingValues::worth(OpId op) const {
  double sum = 0;
  for (TensorId t : graph_.makes(base_variant(graph_, op))) sum += worth_[t];
  return sum;
}

RestingValues::Chain RestingValues::chain_of(OpId op, const IdVector<OpId, Chain>& chains,
                                             const IdVector<OpId, char>& rerun) const {
  const VariantId variant = base_variant(graph_, op);
  // An op that destroys its input would need that made again as well.
  Chain chain{.possible = repeatable_[op] && !graph_.overwrites(variant).valid(),
              .ops = 1,
              .cost = graph_.rerun_cost(variant)};
  for (TensorId t : graph_.reads(variant)) {
    if (graph_.fixed(t)) continue;
    const OpId maker = graph_.producer(t);
    if (rerun[maker]) {
      chain.ops += chains[maker].ops;
      chain.cost += chains[maker].cost;
    } else if (!used_after_turn_[t]) {
      chain.possible = false;
    }
  }
  return chain;
}

DepartureRule RestingValues::rule(const Link& link, std::size_t longest_chain) const {
  DepartureRule rule{.rerun = IdVector<OpId, char>(graph_.num_ops(), 0)};
  if (!turn_.valid()) return rule;
  IdVector<OpId, Chain> chains(graph_.num_ops());
  for (OpId op(0); op < turn_; ++op) {
    const Bytes bytes = resting_bytes(op);
    const Chain chain = chains[op] = chain_of(op, chains, rule.rerun);
    const bool drop = chain.possible && chain.ops <= longest_chain &&
                      (bytes == 0 || chain.cost < copy_cost(link, bytes));
    rule.rerun[op] = drop;
    if (bytes > 0 && (drop || link.can_move())) rule.departures.push_back({op, drop, worth(op)});
  }
  std::ranges::stable_sort(rule.departures, std::ranges::greater{}, &Departure::worth);
  return rule;
}

}  // namespace regen::search
