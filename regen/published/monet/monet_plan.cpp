#include "regen/published/monet/monet_plan.h"

#include <algorithm>
#include <limits>

namespace regen::published {
namespace {

struct Run {
  OpId op;
  std::size_t choice = 0;  // leaves its inputs alone, unless `overwriting`
  bool overwriting = false;
  std::vector<std::size_t> alternatives;  // do the same and overwrite an input
};

class Writer {
 public:
  Writer(const Graph& graph, const MonetBinding& binding, const MonetSolution& solution)
      : graph_(graph), binding_(binding), solution_(solution) {}
  Plan run();

 private:
  void add_forward(std::size_t t, std::uint32_t id);
  void add_backward(std::size_t t);
  void add_rest();
  std::uint32_t algorithm(std::size_t t, std::uint32_t id) const;
  VariantId variant(const Run& run) const { return graph_.variants(run.op)[run.choice]; }
  void choose_overwriting(std::size_t k, const IdVector<TensorId, std::size_t>& next_read);
  void find_last_reads();

  const Graph& graph_;
  const MonetBinding& binding_;
  const MonetSolution& solution_;
  std::vector<Run> runs_;
  // By run: what it reads or makes and no op reads later, before it is made again.
  std::vector<std::vector<TensorId>> dead_after_;
};

std::uint32_t Writer::algorithm(std::size_t t, std::uint32_t id) const {
  const auto found = binding_.instance.conv_list.find(id);
  if (found == binding_.instance.conv_list.end()) return 0;
  const auto& row = solution_.rf[t][found->second];
  return static_cast<std::uint32_t>(std::find(row.begin(), row.end(), 1) - row.begin());
}

// One run for each by-product, since a variant makes at most one of them; mostly a single run.
void Writer::add_forward(std::size_t t, std::uint32_t id) {
  const OpId op = binding_.ops[id];
  if (!op.valid()) return;
  const auto& choices = binding_.choices[id];
  const bool in_place = solution_.ip[t][id] != 0;
  const std::uint32_t number = algorithm(t, id);
  std::vector<std::uint32_t> extras;
  for (const auto& made : binding_.instance.nodes[id].intermediates) {
    if (solution_.r[t][made.node] != 0) extras.push_back(made.node);
  }
  do {
    Run run{.op = op, .choice = 0, .overwriting = in_place, .alternatives = {}};
    std::vector<std::uint32_t> wanted;
    if (!extras.empty()) wanted.push_back(extras.back());
    for (const MonetChoice& choice : choices) {
      if (choice.extras != wanted || choice.number != number) continue;
      if (choice.overwrites == in_place) run.choice = choice.choice;
    }
    runs_.push_back(std::move(run));
    if (!extras.empty()) extras.pop_back();
  } while (!extras.empty());
}

void Writer::add_backward(std::size_t t) {
  const auto id = static_cast<std::uint32_t>(binding_.instance.loss + t);
  if (!binding_.ops[id].valid()) return;
  const auto& ways = solution_.m[t];
  const bool conv = binding_.instance.conv_list.contains(id);
  const std::uint32_t number =
      conv ? algorithm(t, id)
           : static_cast<std::uint32_t>(std::find(ways.begin(), ways.end(), 1) - ways.begin());
  Run run{.op = binding_.ops[id], .choice = 0, .overwriting = false, .alternatives = {}};
  bool found = false;
  for (const MonetChoice& choice : binding_.choices[id]) {
    if (choice.number != number) continue;
    if (choice.overwrites && found) run.alternatives.push_back(choice.choice);
    if (found) continue;
    run.choice = choice.choice;
    run.overwriting = choice.overwrites;
    found = true;
  }
  runs_.push_back(std::move(run));
}

void Writer::add_rest() {
  IdVector<OpId, char> present(graph_.num_ops(), 0);
  for (const Run& run : runs_) present[run.op] = 1;
  for (OpId op : graph_.ops()) {
    if (!present[op])
      runs_.push_back({.op = op, .choice = 0, .overwriting = false, .alternatives = {}});
  }
}

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

// An input that no op reads before it is made again may become the output.
void Writer::choose_overwriting(std::size_t k, const IdVector<TensorId, std::size_t>& next_read) {
  for (const std::size_t choice : runs_[k].alternatives) {
    const TensorId input = graph_.overwrites(graph_.variants(runs_[k].op)[choice]);
    if (next_read[input] != kNever || graph_.kind(input) == TensorKind::kOutput) continue;
    runs_[k].choice = choice;
    runs_[k].overwriting = true;
    return;
  }
}

void Writer::find_last_reads() {
  dead_after_.resize(runs_.size());
  IdVector<TensorId, std::size_t> next_read(graph_.num_tensors(), kNever);
  for (std::size_t k = runs_.size(); k-- > 0;) {
    for (TensorId t : graph_.makes(variant(runs_[k]))) {
      const bool stays = graph_.kind(t) == TensorKind::kOutput;
      if (next_read[t] == kNever && !stays) dead_after_[k].push_back(t);
      next_read[t] = kNever;
    }
    choose_overwriting(k, next_read);
    for (TensorId t : graph_.reads(variant(runs_[k]))) {
      if (graph_.fixed(t)) continue;
      const bool last = next_read[t] == kNever && graph_.kind(t) != TensorKind::kOutput;
      if (last && graph_.overwrites(variant(runs_[k])) != t) dead_after_[k].push_back(t);
      next_read[t] = k;
    }
  }
}

Plan Writer::run() {
  for (std::size_t t = 0; t < solution_.r.size(); ++t) {
    for (std::uint32_t id = 0; id <= binding_.instance.loss; ++id) {
      if (solution_.r[t][id] != 0) add_forward(t, id);
    }
    if (t > 0) add_backward(t);
  }
  add_rest();
  find_last_reads();
  Plan plan;
  IdVector<TensorId, char> here(graph_.num_tensors(), 0);
  for (std::size_t k = 0; k < runs_.size(); ++k) {
    const VariantId v = variant(runs_[k]);
    plan.steps.push_back(Step::compute(runs_[k].op, runs_[k].choice));
    for (TensorId t : graph_.makes(v)) here[t] = 1;
    if (graph_.overwrites(v).valid()) here[graph_.overwrites(v)] = 0;
    for (TensorId t : dead_after_[k]) {
      if (here[t]) plan.steps.push_back(Step::release(t));
      here[t] = 0;
    }
  }
  return plan;
}

}  // namespace

Plan plan_of_monet(const Graph& graph, const MonetBinding& binding, const MonetSolution& solution) {
  return Writer(graph, binding, solution).run();
}

}  // namespace regen::published
