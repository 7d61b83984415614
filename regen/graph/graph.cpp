#include "regen/graph/graph.h"

#include <array>
#include <bit>
#include <cassert>

namespace regen {
namespace {

constexpr std::array<std::string_view, 6> kKindNames{"input",      "param",    "state",
                                                     "activation", "gradient", "output"};
constexpr std::array<std::string_view, 4> kPhaseNames{"forward", "loss", "backward", "update"};

template <typename Enum, std::size_t N>
Result<Enum> parse_name(const std::array<std::string_view, N>& names, std::string_view text,
                        const char* what) {
  std::string expected;
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
    expected += (i == 0 ? "" : i + 1 == N ? " or " : ", ") + std::string(names[i]);
  }
  return bad_input(std::string("unknown ") + what + " '" + std::string(text.substr(0, 60)) +
                   "', expected " + expected);
}

// Larger than any index, so that a group is not taken for one.
constexpr std::uint64_t kGroupMark = std::uint64_t{1} << 32;

// FNV-1a over whole words, finished with a multiply-xorshift.
class Hasher {
 public:
  void add(std::uint64_t word) { state_ = (state_ ^ word) * 0x100000001b3ULL; }
  template <typename I>
  void add_ids(std::span<const I> ids) {
    add(ids.size());
    for (I id : ids) add(id.index());
  }
  std::uint64_t finish() const {
    const std::uint64_t mixed = (state_ ^ (state_ >> 32)) * 0x9e3779b97f4a7c15ULL;
    return mixed ^ (mixed >> 29);
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

}  // namespace

std::string_view to_string(TensorKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}
std::string_view to_string(Phase phase) {
  return kPhaseNames[static_cast<std::size_t>(phase)];
}

Result<TensorKind> parse_tensor_kind(std::string_view text) {
  return parse_name<TensorKind>(kKindNames, text, "tensor kind");
}
Result<Phase> parse_phase(std::string_view text) {
  return parse_name<Phase>(kPhaseNames, text, "phase");
}

std::size_t Graph::num_edges() const {
  std::size_t edges = 0;
  for (OpId op : ops()) {
    for (TensorId t : inputs(op)) edges += producer(t).valid() ? 1 : 0;
  }
  return edges;
}

Graph Graph::with_costs(std::span<const double> cost, std::span<const double> rerun_cost,
                        CostUnit unit) const {
  assert(cost.size() == num_variants() && rerun_cost.size() == num_variants());
  Graph copy = *this;
  copy.cost_unit_ = unit;
  copy.variant_costs_.raw().assign(cost.begin(), cost.end());
  copy.variant_rerun_costs_.raw().assign(rerun_cost.begin(), rerun_cost.end());
  copy.base_cost_ = 0;
  for (OpId op : ops()) copy.base_cost_ += copy.cost(default_variant(op));
  return copy;
}

TensorSpec Graph::tensor_spec(TensorId t) const {
  return {.name = name(t), .bytes = bytes(t), .kind = kind(t), .attributes = attributes(t)};
}

OpSpec Graph::op_spec(OpId op) const {
  OpSpec spec{.name = name(op), .type = type(op), .phase = phase(op)};
  spec.inputs.assign(inputs(op).begin(), inputs(op).end());
  spec.outputs.assign(outputs(op).begin(), outputs(op).end());
  spec.mutates.assign(mutates(op).begin(), mutates(op).end());
  spec.recomputable = recomputable(op);
  spec.random = random(op);
  spec.choice_group = choice_group(op);
  spec.attributes = attributes(op);
  for (VariantId v : variants(op)) {
    VariantSpec variant{.name = name(v), .cost = cost(v)};
    if (rerun_cost(v) != cost(v)) variant.rerun_cost = rerun_cost(v);
    variant.workspace = workspace(v);
    if (!std::equal(reads(v).begin(), reads(v).end(), inputs(op).begin(), inputs(op).end())) {
      variant.reads.emplace(reads(v).begin(), reads(v).end());
    }
    const auto extra = makes(v).subspan(outputs(op).size());
    variant.extra_outputs.assign(extra.begin(), extra.end());
    variant.overwrites = overwrites(v);
    variant.flops = flops(v);
    variant.traffic = traffic(v);
    spec.variants.push_back(std::move(variant));
  }
  return spec;
}

std::uint64_t Graph::fingerprint() const {
  Hasher hasher;
  for (TensorId t : tensors()) {
    hasher.add(static_cast<std::uint64_t>(bytes(t)));
    hasher.add(static_cast<std::uint64_t>(kind(t)));
  }
  for (OpId op : ops()) {
    hasher.add((recomputable(op) ? 1u : 0u) + (random(op) ? 2u : 0u));
    hasher.add_ids(mutates(op));
    if (choice_group(op).valid()) hasher.add(kGroupMark + choice_group(op).index());
    for (VariantId v : variants(op)) {
      hasher.add_ids(reads(v));
      hasher.add_ids(makes(v));
      hasher.add(overwrites(v).index());
      hasher.add(static_cast<std::uint64_t>(workspace(v)));
    }
  }
  return hasher.finish();
}

}  // namespace regen
