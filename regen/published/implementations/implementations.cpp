#include "regen/published/implementations/implementations.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

std::vector<TensorId> sorted(std::span<const TensorId> tensors) {
  std::vector<TensorId> result(tensors.begin(), tensors.end());
  std::ranges::sort(result);
  return result;
}

bool contains(const std::vector<TensorId>& all, const std::vector<TensorId>& some) {
  return std::ranges::includes(all, some);
}

}  // namespace

Implementations::Implementations(const Graph& graph)
    : graph_(graph), of_(graph.num_ops()), extra_(graph.num_tensors(), 0) {
  for (OpId op : graph.ops()) {
    const auto variants = graph.variants(op);
    for (const bool overwrites : {false, true}) {
      for (std::size_t i = 0; i < variants.size(); ++i) {
        if (graph.overwrites(variants[i]).valid() == overwrites) add(op, i);
      }
    }
    for (const Implementation& one : of_[op]) {
      for (TensorId t : one.extras) extra_[t] = 1;
    }
  }
}

// One that overwrites an input goes with those that do the same without: a plan takes it where it
// costs no more and the input is not needed again. One that costs more is a choice of its own.
void Implementations::add(OpId op, std::size_t number) {
  const VariantId v = graph_.variants(op)[number];
  const bool overwrites = graph_.overwrites(v).valid();
  Implementation own{.variants = {number},
                     .reads = {},
                     .extras = sorted(graph_.makes(v).subspan(graph_.outputs(op).size())),
                     .overwrites = overwrites,
                     .cost = graph_.cost(v),
                     .own_bytes = graph_.workspace(v)};
  for (TensorId t : sorted(graph_.reads(v))) {
    if (!graph_.fixed(t)) own.reads.push_back(t);
  }
  for (TensorId t : own.extras) own.own_bytes += graph_.bytes(t);
  if (overwrites) own.own_bytes -= graph_.bytes(graph_.outputs(op)[0]);
  bool joined = false;
  for (Implementation& other : of_[op]) {
    if (other.overwrites || other.extras != own.extras) continue;
    if (overwrites) {
      const VariantId plain = graph_.variants(op)[other.variants.front()];
      if (contains(other.reads, own.reads)) other.variants.push_back(number);
      joined = joined || search::can_replace(graph_, v, plain);
    } else if (other.reads == own.reads) {
      other.variants.push_back(number);
      other.cost = std::min(other.cost, own.cost);
      other.own_bytes = std::min(other.own_bytes, own.own_bytes);
      joined = true;
    }
  }
  if (!joined) of_[op].push_back(std::move(own));
}

ChosenImplementations Implementations::base() const {
  ChosenImplementations chosen(graph_.num_ops(), 0);
  for (OpId op : graph_.ops()) {
    const VariantId base = search::base_variant(graph_, op);
    const std::size_t number = base.index() - graph_.default_variant(op).index();
    for (std::size_t i = 0; i < of_[op].size(); ++i) {
      if (of_[op][i].variants.front() == number) chosen[op] = i;
    }
  }
  return chosen;
}

std::optional<ChosenImplementations> Implementations::of_plan(const Plan& plan) const {
  ChosenImplementations chosen = base();
  IdVector<OpId, char> ran(graph_.num_ops(), 0);
  for (const Step& step : plan.steps) {
    if (step.kind() != StepKind::kCompute || std::exchange(ran[step.op()], 1)) continue;
    for (std::size_t i = 0; i < of_[step.op()].size(); ++i) {
      const auto& variants = of_[step.op()][i].variants;
      if (std::ranges::find(variants, step.choice()) != variants.end()) {
        chosen[step.op()] = i;
        break;
      }
    }
  }
  if (!settle(chosen)) return std::nullopt;
  return chosen;
}

std::vector<std::size_t> Implementations::candidates(OpId op, const std::vector<TensorId>& reads,
                                                     const std::vector<TensorId>& wanted) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < of_[op].size(); ++i) {
    if (of_[op][i].reads == reads && contains(of_[op][i].extras, wanted)) found.push_back(i);
  }
  const auto worth = [&](std::size_t i) {
    return std::pair(of_[op][i].cost, of_[op][i].own_bytes);
  };
  std::ranges::stable_sort(found, {}, worth);
  Bytes least = std::numeric_limits<Bytes>::max();
  std::erase_if(found, [&](std::size_t i) {
    const bool dearer_and_no_smaller = of_[op][i].own_bytes >= least;
    least = std::min(least, of_[op][i].own_bytes);
    return dearer_and_no_smaller;
  });
  return found;
}

// What later ops read, by their present choices, of what only some implementations make.
std::vector<TensorId> Implementations::wanted_of(OpId op,
                                                 const ChosenImplementations& chosen) const {
  std::vector<TensorId> wanted;
  for (const Implementation& one : of_[op]) {
    for (TensorId t : one.extras) {
      const bool read = std::ranges::any_of(graph_.consumers(t), [&](OpId reader) {
        const auto& reads = of_[reader][chosen[reader]].reads;
        return std::ranges::binary_search(reads, t);
      });
      if (read) wanted.push_back(t);
    }
  }
  std::ranges::sort(wanted);
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  return wanted;
}

bool Implementations::settle(ChosenImplementations& chosen) const {
  for (std::size_t i = graph_.num_ops(); i-- > 0;) {
    const OpId op(i);
    if (of_[op].size() == 1) continue;
    const std::vector<TensorId> wanted = wanted_of(op, chosen);
    const Implementation& now = of_[op][chosen[op]];
    if (now.extras == wanted) continue;
    auto found = candidates(op, now.reads, wanted);
    if (found.empty()) {
      for (std::size_t other = 0; other < of_[op].size() && found.empty(); ++other) {
        found = candidates(op, of_[op][other].reads, wanted);
      }
    }
    if (found.empty()) return false;
    chosen[op] = found.front();
  }
  return true;
}

double Implementations::cost(const ChosenImplementations& chosen) const {
  double sum = 0;
  for (OpId op : graph_.ops()) sum += of_[op][chosen[op]].cost;
  return sum;
}

bool Implementations::enumerate(std::size_t ops_left, ChosenImplementations& chosen,
                                std::size_t most, std::vector<ChosenImplementations>& found) const {
  while (ops_left > 0 && of_[OpId(ops_left - 1)].size() == 1) --ops_left;
  if (ops_left == 0) {
    found.push_back(chosen);
    return found.size() <= most;
  }
  const OpId op(ops_left - 1);
  const std::vector<TensorId> wanted = wanted_of(op, chosen);
  std::vector<std::vector<TensorId>> seen;
  for (const Implementation& one : of_[op]) {
    if (std::ranges::find(seen, one.reads) != seen.end()) continue;
    seen.push_back(one.reads);
    for (const std::size_t candidate : candidates(op, one.reads, wanted)) {
      chosen[op] = candidate;
      if (!enumerate(ops_left - 1, chosen, most, found)) return false;
    }
  }
  return true;
}

std::optional<std::vector<ChosenImplementations>> Implementations::all(std::size_t most) const {
  std::vector<ChosenImplementations> found;
  ChosenImplementations chosen(graph_.num_ops(), 0);
  if (!enumerate(graph_.num_ops(), chosen, most, found)) return std::nullopt;
  std::ranges::stable_sort(found, {}, [&](const auto& one) { return cost(one); });
  return found;
}

Result<search::VariantView> Implementations::view(
    const ChosenImplementations& chosen, const IdVector<OpId, VariantId>* preferred) const {
  IdVector<OpId, std::vector<std::size_t>> numbers(graph_.num_ops());
  for (OpId op : graph_.ops()) {
    numbers[op] = of_[op][chosen[op]].variants;
    if (preferred == nullptr) continue;
    const std::size_t number = (*preferred)[op].index() - graph_.default_variant(op).index();
    const auto place = std::ranges::find(numbers[op], number);
    if (place != numbers[op].end()) std::rotate(numbers[op].begin(), place, place + 1);
  }
  return search::VariantView::with_variants(graph_, std::move(numbers));
}

bool several_implementations(const Graph& graph) {
  for (OpId op : graph.ops()) {
    if (graph.variants(op).size() == 1) continue;
    const Implementations all(graph);
    return std::ranges::any_of(graph.ops(), [&](OpId o) { return all.of(o).size() > 1; });
  }
  return false;
}

}  // namespace regen::published
