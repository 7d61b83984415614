#include "tests/support/oracles/monet_oracle.h"

#include <algorithm>

namespace regen::testing {
namespace {

published::MonetCosts random_costs(Random& random, std::size_t count) {
  published::MonetCosts costs;
  for (std::size_t k = 0; k < count; ++k) {
    costs.workspace_mib.push_back(static_cast<double>(random.between(0, 3)));
    costs.ms.push_back(static_cast<double>(random.between(1, 20)) / 4);
  }
  return costs;
}

std::uint32_t add(published::MonetInstance& instance, published::MonetKind kind,
                  std::vector<std::uint32_t> args, Random& random) {
  published::MonetNode node;
  node.kind = kind;
  node.op = "op";
  node.mem = random.between(1, 4) << 20;
  node.fixed_mem = 1 << 20;
  node.args = {std::move(args)};
  node.first_run = random_costs(random, 1);
  node.rerun = random_costs(random, 1);
  node.in_place = node.first_run;
  instance.nodes.push_back(std::move(node));
  return static_cast<std::uint32_t>(instance.nodes.size() - 1);
}

void add_backward(published::MonetInstance& instance, std::uint32_t op, std::uint32_t input,
                  std::uint32_t gradient, Random& random) {
  const auto id = add(instance, published::MonetKind::kBackward, {}, random);
  published::MonetNode& node = instance.nodes[id];
  node.bwd_op = "ip_grad";
  node.fwd_id = op;
  node.args = {{input, gradient}};
  if (input == op || random.chance(0.2)) node.args = {{gradient}};
  if (random.chance(0.5)) node.args.push_back({op, gradient});
  for (const auto& made : instance.nodes[op].intermediates) {
    node.args.push_back({made.node, gradient});
  }
  node.first_run = node.rerun = node.in_place = random_costs(random, node.args.size());
  if (random.chance(0.3)) node.first_run.workspace_mib[0] = -1;
}

// As the published tracer does it: alive from the maker to the last reader of the same pass.
void set_local_tensors(published::MonetInstance& instance) {
  for (std::uint32_t v = 0; v < instance.nodes.size(); ++v) {
    for (std::uint32_t u = 0; u < v; ++u) {
      if (u < instance.loss && v > instance.loss) continue;
      const bool alive = std::ranges::any_of(instance.edges, [&](const published::MonetEdge& edge) {
        const bool crosses = edge.from < instance.loss && edge.to > instance.loss;
        return edge.from == u && edge.to >= v && !crosses;
      });
      if (!alive) continue;
      instance.nodes[v].local_tensors.push_back(u);
      instance.nodes[v].local_memory += instance.nodes[u].mem;
    }
  }
}

// All ways to run one stage between two storage rows.
class StageOracle {
 public:
  StageOracle(const published::MonetInstance& instance, Bytes budget,
              const published::MonetRules& rules)
      : instance_(instance),
        budget_(budget),
        rules_(rules),
        forward_(instance.loss + 1),
        x_(published::empty_monet_solution(instance)) {}

  std::optional<published::Ticks> least(std::size_t t, unsigned before, unsigned after);

 private:
  void try_runs(std::size_t t, unsigned made);
  void try_algorithms(std::size_t t, std::map<std::uint32_t, std::uint32_t>::const_iterator conv);
  static void put(std::vector<std::uint8_t>& row, unsigned bits) {
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = bits >> i & 1;
  }

  const published::MonetInstance& instance_;
  Bytes budget_;
  const published::MonetRules& rules_;
  std::size_t forward_;
  published::MonetSolution x_;
  std::optional<published::Ticks> best_;
};

void StageOracle::try_algorithms(std::size_t t,
                                 std::map<std::uint32_t, std::uint32_t>::const_iterator conv) {
  if (conv == instance_.conv_list.end()) {
    const published::MonetVerdict verdict =
        published::evaluate_monet_stage(instance_, x_, t, budget_, rules_);
    if (!verdict.violation.empty()) return;
    if (!best_ || verdict.objective < *best_) best_ = verdict.objective;
    return;
  }
  auto& row = x_.rf[t][conv->second];
  std::fill(row.begin(), row.end(), 0);
  const auto next = std::next(conv);
  if (conv->first >= forward_ || x_.r[t][conv->first] == 0) return try_algorithms(t, next);
  for (auto& chosen : row) {
    chosen = 1;
    try_algorithms(t, next);
    chosen = 0;
  }
}

void StageOracle::try_runs(std::size_t t, unsigned made) {
  put(x_.r[t], made);
  for (unsigned in_place = 0; in_place < 1U << forward_; ++in_place) {
    if ((in_place & ~made) != 0) continue;
    put(x_.ip[t], in_place);
    x_.p[t] = x_.r[t];
    bool listed = true;
    for (std::uint32_t i = 0; i < forward_; ++i) {
      if (x_.ip[t][i] == 0) continue;
      const auto found = instance_.inplace_list.find(i);
      listed = listed && found != instance_.inplace_list.end();
      if (listed) x_.p[t][found->second] = 0;
    }
    if (listed) try_algorithms(t, instance_.conv_list.begin());
  }
}

std::optional<published::Ticks> StageOracle::least(std::size_t t, unsigned before, unsigned after) {
  best_.reset();
  put(x_.s[t], before);
  put(x_.s[t + 1], after);
  const std::size_t ways = t == 0 ? 1 : instance_.nodes[instance_.loss + t].args.size();
  for (std::size_t way = 0; way < ways; ++way) {
    std::fill(x_.m[t].begin(), x_.m[t].end(), 0);
    x_.m[t][way] = 1;
    for (unsigned made = 0; made < 1U << forward_; ++made) {
      if ((after & ~before & ~made) == 0) try_runs(t, made);
    }
  }
  return best_;
}

}  // namespace

published::MonetInstance random_monet_instance(Random& random) {
  published::MonetInstance instance;
  instance.model = instance.mode = "random";
  instance.num_conv_algos = 2;
  const int ops = random.chance(0.8) ? 2 : 3;
  std::vector<std::uint32_t> forward;
  for (int k = 0; k < ops; ++k) {
    std::vector<std::uint32_t> args;
    if (k > 0) args.push_back(forward.back());
    forward.push_back(add(instance, published::MonetKind::kForward, std::move(args), random));
  }
  if (ops == 2 && random.chance(0.5)) {
    const std::uint32_t parent = forward.back();
    const auto id = add(instance, published::MonetKind::kIntermediate, {parent}, random);
    instance.nodes[id].parent = parent;
    instance.nodes[id].op_idx = 1;
    instance.nodes[id].mem = 1 << 18;
    instance.nodes[parent].intermediates.push_back({1, id});
  }
  instance.loss = add(instance, published::MonetKind::kForward, {forward.back()}, random);
  instance.nodes[instance.loss].first_run = instance.nodes[instance.loss].rerun = {{0}, {0}};
  if (random.chance(0.6)) {
    published::MonetNode& node = instance.nodes[forward[1]];
    node.in_place.workspace_mib[0] = -static_cast<double>(node.mem) / (1 << 20);
    node.in_place.ms[0] = random.chance(0.7) ? 0.25 : 6;
    instance.inplace_list[forward[1]] = forward[0];
    node.rerun.ms = node.first_run.ms;  // as measured: else running it for nothing could pay
    for (const auto& made : node.intermediates) {
      instance.inplace_list[made.node] = forward[0];
      instance.nodes[made.node].rerun.ms = instance.nodes[made.node].first_run.ms;
    }
  }
  if (random.chance(0.5)) {
    published::MonetNode& node = instance.nodes[0];
    node.first_run = node.rerun = node.in_place = random_costs(random, 2);
    instance.conv_list[0] = 0;
  }
  std::uint32_t gradient = instance.loss;
  for (int k = ops; k-- > 0;) {
    const std::uint32_t op = forward[static_cast<std::size_t>(k)];
    add_backward(instance, op, k > 0 ? op - 1 : op, gradient, random);
    gradient = static_cast<std::uint32_t>(instance.nodes.size() - 1);
  }
  for (std::uint32_t id = 0; id < instance.nodes.size(); ++id) {
    for (std::uint32_t p = 0; p < instance.nodes[id].args.size(); ++p) {
      for (std::uint32_t arg : instance.nodes[id].args[p]) instance.edges.push_back({arg, id, p});
    }
  }
  set_local_tensors(instance);
  return instance;
}

std::optional<published::Ticks> least_monet_objective(const published::MonetInstance& instance,
                                                      Bytes budget,
                                                      const published::MonetRules& rules) {
  StageOracle stage(instance, budget, rules);
  const unsigned rows = 1U << (instance.loss + 1);
  const std::size_t stages = instance.nodes.size() - instance.loss;
  std::vector<std::optional<published::Ticks>> here(rows), next(rows);
  here[0] = 0;
  for (std::size_t t = 0; t < stages; ++t) {
    std::fill(next.begin(), next.end(), std::nullopt);
    for (unsigned before = 0; before < rows; ++before) {
      if (!here[before]) continue;
      for (unsigned after = 0; after < rows; ++after) {
        const auto ticks = stage.least(t, before, after);
        if (ticks && (!next[after] || *here[before] + *ticks < *next[after])) {
          next[after] = *here[before] + *ticks;
        }
      }
    }
    std::swap(here, next);
  }
  std::optional<published::Ticks> best;
  for (const auto& value : here) {
    if (value && (!best || *value < *best)) best = value;
  }
  return best;
}

}  // namespace regen::testing
