#include "tests/support/oracles/stage_oracle.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "regen/graph/builder.h"

namespace regen::testing {
namespace {

using Mask = std::uint32_t;  // ops, or the values they make

struct Tiny {
  std::size_t n = 0;
  std::vector<Mask> reads;
  std::vector<Mask> readers;
  std::vector<Bytes> bytes, workspace;
  std::vector<double> cost, again;
  Mask repeatable = 0;
  Mask outputs = 0;
};

Tiny tiny_of(const Graph& graph, bool gradients_again) {
  Tiny tiny;
  tiny.n = graph.num_ops();
  tiny.readers.assign(tiny.n, 0);
  for (OpId op : graph.ops()) {
    const VariantId v = graph.default_variant(op);
    Mask reads = 0;
    for (TensorId t : graph.reads(v)) {
      if (graph.fixed(t)) continue;
      reads |= Mask{1} << graph.producer(t).index();
      tiny.readers[graph.producer(t).index()] |= Mask{1} << op.index();
    }
    if (graph.makes(v).size() != 1 || graph.variants(op).size() != 1) std::abort();
    const TensorId made = graph.makes(v)[0];
    tiny.reads.push_back(reads);
    tiny.bytes.push_back(graph.bytes(made));
    tiny.workspace.push_back(graph.workspace(v));
    tiny.cost.push_back(graph.cost(v));
    tiny.again.push_back(graph.rerun_cost(v));
    const bool may =
        graph.recomputable(op) && (gradients_again || graph.phase(op) == Phase::kForward);
    if (may) tiny.repeatable |= Mask{1} << op.index();
    if (graph.kind(made) == TensorKind::kOutput) tiny.outputs |= Mask{1} << op.index();
  }
  return tiny;
}

// One stage from what it begins with to what it hands on; nothing if that cannot be.
std::optional<Tradeoff> run_stage(const Tiny& tiny, std::size_t stage, Mask before, Mask after) {
  const Mask self = Mask{1} << stage;
  Mask run = self | (after & ~before);
  for (std::size_t i = stage + 1; i-- > 0;) {
    if (run >> i & 1) run |= tiny.reads[i] & ~before;
  }
  if (run & ~self & ~tiny.repeatable) return std::nullopt;
  Tradeoff result;
  Mask live = before;
  for (std::size_t i = 0; i <= stage; ++i) {
    if (!(run >> i & 1)) continue;
    if ((tiny.reads[i] & ~live) != 0) std::abort();
    live |= Mask{1} << i;
    Bytes memory = tiny.workspace[i];
    // A value that nothing reads any more left after its last use.
    const Mask later = i + 1 >= 32 ? 0 : run & ~((Mask{2} << i) - 1);
    for (std::size_t v = 0; v <= stage; ++v) {
      if (!(live >> v & 1)) continue;
      const bool now = v == i || (tiny.reads[i] >> v & 1);
      const bool wanted = (tiny.readers[v] & later) || (after >> v & 1);
      // What is made again in this stage need not have come from before.
      const bool replaced = v > i && (run >> v & 1);
      if (now || (wanted && !replaced)) memory += tiny.bytes[v];
    }
    result.peak = std::max(result.peak, memory);
    result.cost += i == stage ? tiny.cost[i] : tiny.again[i];
  }
  return result;
}

using Front = std::vector<Tradeoff>;

void insert(Front& front, const Tradeoff& t) {
  for (const Tradeoff& other : front) {
    if (other.peak <= t.peak && other.cost <= t.cost) return;
  }
  std::erase_if(
      front, [&](const Tradeoff& other) { return t.peak <= other.peak && t.cost <= other.cost; });
  front.push_back(t);
}

}  // namespace

std::vector<Tradeoff> frontier_tradeoffs(const Graph& graph, bool gradients_again) {
  const Tiny tiny = tiny_of(graph, gradients_again);
  std::map<Mask, Front> states{{0, {Tradeoff{}}}};
  for (std::size_t stage = 0; stage < tiny.n; ++stage) {
    // What may be handed on: all that exists; what cannot be made again is kept while a first run
    // still needs it, for without it there is no schedule.
    const Mask exists = (Mask{2} << stage) - 1;
    const Mask to_come = ~exists & ((Mask{1} << tiny.n) - 1);
    Mask choice = 0;
    Mask forced = 0;
    for (std::size_t v = 0; v <= stage; ++v) {
      const Mask bit = Mask{1} << v;
      const bool needed = (tiny.readers[v] & to_come) != 0 || (tiny.outputs & bit) != 0;
      if (tiny.repeatable & bit) {
        choice |= bit;
      } else if (needed) {
        forced |= bit;
      } else {
        choice |= tiny.readers[v] & tiny.repeatable ? bit : 0;
      }
    }
    if (stage + 1 == tiny.n) choice = 0, forced = tiny.outputs;
    std::map<Mask, Front> next;
    for (const auto& [before, front] : states) {
      for (Mask part = choice;; part = (part - 1) & choice) {
        const Mask after = part | forced;
        if (const auto step = run_stage(tiny, stage, before, after)) {
          Front& target = next[after];
          for (const Tradeoff& t : front) {
            insert(target, {std::max(t.peak, step->peak), t.cost + step->cost});
          }
        }
        if (part == 0) break;
      }
    }
    states = std::move(next);
  }
  Front result;
  for (const auto& [mask, front] : states) {
    for (const Tradeoff& t : front) insert(result, t);
  }
  std::ranges::sort(result, {}, &Tradeoff::peak);
  return result;
}

Graph random_mirrored_graph(Random& random, int layers) {
  GraphBuilder builder("random", CostUnit::kFlop);
  const TensorId input = builder.add_tensor({"x", random.between(0, 5), TensorKind::kInput});
  const auto n = static_cast<std::size_t>(layers);
  std::vector<TensorId> value(n), gradient(n);
  std::vector<std::vector<std::size_t>> consumers(n);
  const auto add = [&](const std::string& name, Phase phase, std::vector<TensorId> inputs,
                       TensorKind kind) {
    const TensorId out = builder.add_tensor({name, random.between(0, 9), kind});
    OpSpec op{
        .name = name, .type = "op", .phase = phase, .inputs = std::move(inputs), .outputs = {out}};
    op.recomputable = !random.chance(0.05);
    VariantSpec variant{.name = "v", .cost = static_cast<double>(random.between(0, 9))};
    if (random.chance(0.2)) variant.workspace = random.between(1, 6);
    if (random.chance(0.1)) variant.rerun_cost = static_cast<double>(random.between(0, 9));
    op.variants = {variant};
    builder.add_op(op);
    return out;
  };
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<TensorId> inputs;
    if (i == 0) inputs.push_back(input);
    const std::size_t fan_in = i == 0 ? 0 : (i > 1 && random.chance(0.3) ? 2 : 1);
    for (std::size_t k = 0; k < fan_in; ++k) {
      const std::size_t from =
          k == 0 && random.chance(0.8)
              ? i - 1
              : static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i) - 1));
      if (std::find(inputs.begin(), inputs.end(), value[from]) != inputs.end()) continue;
      inputs.push_back(value[from]);
      consumers[from].push_back(i);
    }
    value[i] = add("f" + std::to_string(i), Phase::kForward, inputs, TensorKind::kActivation);
  }
  const TensorId loss = add("loss", Phase::kLoss, {value[n - 1]}, TensorKind::kActivation);
  for (std::size_t i = n; i-- > 0;) {
    std::vector<TensorId> inputs{value[i]};
    if (i == n - 1) inputs.push_back(loss);
    for (std::size_t j : consumers[i]) {
      if (random.chance(0.8)) inputs.push_back(value[j]);
      inputs.push_back(gradient[j]);
    }
    gradient[i] = add("b" + std::to_string(i), Phase::kBackward, inputs,
                      i == 0 ? TensorKind::kOutput : TensorKind::kGradient);
  }
  auto graph = std::move(builder).build();
  if (!graph.ok()) std::abort();
  return *std::move(graph);
}

}  // namespace regen::testing
