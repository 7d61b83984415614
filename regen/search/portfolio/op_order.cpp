#include "regen/search/portfolio/op_order.h"

#include <algorithm>
#include <set>
#include <utility>

#include "regen/graph/builder.h"

namespace regen::search {
namespace {

int part_of_step(Phase phase) {
  return phase == Phase::kForward ? 0 : phase == Phase::kLoss ? 1 : 2;
}

// Counts, for ops that are placed one after the other, which values live. Backwards in time a value
// begins with its last reader and ends with its maker.
class LiveValues {
 public:
  LiveValues(const Graph& graph, bool backwards)
      : graph_(graph), backwards_(backwards), readers_(graph.num_tensors(), 0) {
    for (TensorId t : graph.tensors()) {
      readers_[t] = static_cast<std::uint32_t>(graph.consumers(t).size());
    }
  }

  // By how much the bytes grow when this op is placed next.
  Bytes growth(OpId op) const {
    Bytes made = 0;
    for (TensorId t : graph_.outputs(op)) {
      const bool lasts = !graph_.consumers(t).empty() || graph_.kind(t) == TensorKind::kOutput;
      if (lasts) made += graph_.bytes(t);
    }
    Bytes read = 0;
    for (TensorId t : graph_.inputs(op)) {
      if (!graph_.fixed(t) && turns(t)) read += graph_.bytes(t);
    }
    return backwards_ ? read - made : made - read;
  }

  void place(OpId op) {
    for (TensorId t : graph_.inputs(op)) --readers_[t];
  }

 private:
  // Does the value end, or backwards begin, with the reader that is placed next?
  bool turns(TensorId t) const {
    if (graph_.kind(t) == TensorKind::kOutput) return false;
    return backwards_ ? readers_[t] == graph_.consumers(t).size() : readers_[t] == 1;
  }

  const Graph& graph_;
  bool backwards_;
  IdVector<TensorId, std::uint32_t> readers_;  // that are not placed yet
};

using Neighbours = IdVector<OpId, std::vector<OpId>>;

// Places ops one after the other, forwards or backwards in time.
class ListSchedule {
 public:
  ListSchedule(const Graph& graph, const Neighbours& previous, const Neighbours& next,
               bool backwards)
      : graph_(graph),
        next_(next),
        backwards_(backwards),
        live_(graph, backwards),
        waiting_(graph.num_ops(), 0) {
    for (OpId op : graph.ops()) {
      waiting_[op] = previous[op].size();
      if (waiting_[op] == 0) ready_.insert(turn_of(op));
    }
  }

  std::vector<OpId> run() {
    std::vector<OpId> order;
    while (!ready_.empty()) {
      const Turn turn = next_turn();
      ready_.erase(turn);
      live_.place(turn.op);
      order.push_back(turn.op);
      for (OpId follower : next_[turn.op]) {
        if (--waiting_[follower] == 0) ready_.insert(turn_of(follower));
      }
    }
    return order;
  }

 private:
  struct Turn {
    int part;
    std::int64_t rank;
    OpId op;
    auto operator<=>(const Turn&) const = default;
  };

  Turn turn_of(OpId op) const {
    const int part = part_of_step(graph_.phase(op));
    const auto rank = static_cast<std::int64_t>(op.index());
    return backwards_ ? Turn{-part, -rank, op} : Turn{part, rank, op};
  }

  // What lets the bytes shrink most, otherwise the first in sequence.
  Turn next_turn() const {
    Turn chosen = *ready_.begin();
    Bytes least = 0;
    for (const Turn& turn : ready_) {
      if (turn.part != ready_.begin()->part) break;
      if (!graph_.mutates(turn.op).empty()) continue;
      const Bytes growth = live_.growth(turn.op);
      if (growth < least) {
        least = growth;
        chosen = turn;
      }
    }
    return chosen;
  }

  const Graph& graph_;
  const Neighbours& next_;
  bool backwards_;
  LiveValues live_;
  IdVector<OpId, std::size_t> waiting_;
  std::set<Turn> ready_;
};

}  // namespace

OrderRules::OrderRules(const Graph& graph)
    : graph_(graph), after_(graph.num_ops()), before_(graph.num_ops()) {
  add_values();
  add_changes();
  add_random();
}

void OrderRules::add(OpId before, OpId after) {
  after_[before].push_back(after);
  before_[after].push_back(before);
}

void OrderRules::add_values() {
  for (OpId op : graph_.ops()) {
    for (TensorId t : graph_.inputs(op)) {
      if (!graph_.fixed(t)) add(graph_.producer(t), op);
    }
    for (VariantId v : graph_.variants(op)) {
      if (!graph_.overwrites(v).valid()) continue;
      for (OpId reader : graph_.consumers(graph_.overwrites(v))) {
        if (reader < op) add(reader, op);
      }
    }
  }
}

void OrderRules::add_changes() {
  IdVector<TensorId, OpId> changed(graph_.num_tensors());
  IdVector<TensorId, std::vector<OpId>> read(graph_.num_tensors());
  for (OpId op : graph_.ops()) {
    for (TensorId t : graph_.inputs(op)) {
      if (!graph_.fixed(t)) continue;
      if (changed[t].valid()) add(changed[t], op);
      read[t].push_back(op);
    }
    for (TensorId t : graph_.mutates(op)) {
      if (changed[t].valid()) add(changed[t], op);
      for (OpId reader : read[t]) {
        if (reader != op) add(reader, op);
      }
      read[t].clear();
      changed[t] = op;
    }
  }
}

void OrderRules::add_random() {
  OpId last;
  for (OpId op : graph_.ops()) {
    if (!graph_.random(op)) continue;
    if (last.valid()) add(last, op);
    last = op;
  }
}

std::vector<OpId> OrderRules::early_release() const {
  return ListSchedule(graph_, before_, after_, false).run();
}

std::vector<OpId> OrderRules::late_making() const {
  std::vector<OpId> order = ListSchedule(graph_, after_, before_, true).run();
  std::ranges::reverse(order);
  return order;
}

bool OrderRules::allow(const std::vector<OpId>& order) const {
  IdVector<OpId, std::size_t> place(graph_.num_ops(), order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  return order.size() == graph_.num_ops() && std::ranges::all_of(graph_.ops(), [&](OpId op) {
           return place[op] < order.size() && std::ranges::all_of(before_[op], [&](OpId earlier) {
                    return place[earlier] < place[op];
                  });
         });
}

Result<OrderView> OrderView::make(const Graph& original, std::vector<OpId> order) {
  GraphBuilder builder(original.name(), original.cost_unit());
  for (TensorId t : original.tensors()) builder.add_tensor(original.tensor_spec(t));
  for (OpId op : order) builder.add_op(original.op_spec(op));
  OrderView view;
  REGEN_ASSIGN(view.graph_, std::move(builder).build());
  view.order_ = std::move(order);
  return view;
}

Plan OrderView::original(Plan plan) const {
  for (Step& step : plan.steps) {
    if (step.kind() == StepKind::kCompute) {
      step = Step::compute(order_[step.op().index()], step.choice());
    }
  }
  return plan;
}

}  // namespace regen::search
