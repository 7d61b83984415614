#include "regen/planners/monet_binding.h"

#include <algorithm>
#include <charconv>

namespace regen {
namespace {

constexpr double kMib = 1 << 20;

// The digits in the name of an imported variant: algorithm3, implementation1_in_place.
std::uint32_t number_in(const std::string& name) {
  std::uint32_t number = 0;
  const std::size_t at = name.find_first_of("0123456789");
  if (at != std::string::npos) {
    std::from_chars(name.data() + at, name.data() + name.size(), number);
  }
  return number;
}

bool numbered(const std::string& name) {
  return name.starts_with("algorithm") || name.starts_with("implementation");
}

// Tensor i of an imported graph is what node i makes.
void bind_imported(const Graph& graph, MonetBinding& binding) {
  const std::size_t nodes = binding.instance.nodes.size();
  for (std::uint32_t id = 0; id < nodes; ++id) {
    const bool extra = binding.instance.nodes[id].kind == MonetKind::kIntermediate;
    const OpId op = graph.producer(TensorId(id));
    binding.ops.push_back(extra ? OpId::none() : op);
    binding.tensors.push_back(TensorId(id));
    auto& choices = binding.choices.emplace_back();
    if (extra) continue;
    for (VariantId v : graph.variants(op)) {
      MonetChoice choice{.choice = v.index() - graph.default_variant(op).index(),
                         .number = numbered(graph.name(v)) ? number_in(graph.name(v)) : 0,
                         .overwrites = graph.overwrites(v).valid(),
                         .extras = {}};
      for (TensorId t : graph.makes(v)) {
        const bool made =
            t.index() < nodes && binding.instance.nodes[t.index()].kind == MonetKind::kIntermediate;
        if (made) choice.extras.push_back(static_cast<std::uint32_t>(t.index()));
      }
      choices.push_back(std::move(choice));
    }
  }
}

// Gives an instance of default variants the other variants of its graph.
class VariantBinder {
 public:
  VariantBinder(const Graph& graph, MonetBinding& binding) : graph_(graph), binding_(binding) {}
  void run();

 private:
  MonetNode& node(std::uint32_t id) { return binding_.instance.nodes[id]; }
  bool plain_forward(VariantId v, OpId op) const;
  void bind_ops();
  void add_costs(VariantId v, MonetCosts& first, MonetCosts& again) const;
  void offer_algorithms(std::uint32_t id);
  void offer_in_place(std::uint32_t id);
  void offer_implementations(std::uint32_t id);
  std::optional<std::vector<std::uint32_t>> args_of(VariantId v, std::uint32_t id) const;

  const Graph& graph_;
  MonetBinding& binding_;
  IdVector<TensorId, std::uint32_t> makers_;
  std::vector<std::uint32_t> last_reader_;  // forward, by forward node
};

constexpr std::uint32_t kNone = UINT32_MAX;

void VariantBinder::bind_ops() {
  std::vector<OpId> forward, backward;
  OpId loss;
  for (OpId op : graph_.ops()) {
    const Phase phase = graph_.phase(op);
    if (phase == Phase::kBackward) backward.push_back(op);
    if (phase == Phase::kForward || phase == Phase::kLoss) forward.push_back(op);
    if (phase == Phase::kLoss) loss = op;
  }
  // The last loss op is the loss node, whatever comes after it in the forward pass.
  if (loss.valid()) std::erase(forward, loss);
  binding_.ops = std::move(forward);
  binding_.ops.push_back(loss);
  binding_.ops.insert(binding_.ops.end(), backward.begin(), backward.end());
  makers_.assign(graph_.num_tensors(), kNone);
  for (std::uint32_t id = 0; id < binding_.ops.size(); ++id) {
    const OpId op = binding_.ops[id];
    binding_.tensors.push_back(TensorId::none());
    if (!op.valid()) continue;
    for (TensorId t : graph_.outputs(op)) makers_[t] = id;
    if (!graph_.outputs(op).empty()) binding_.tensors.back() = graph_.outputs(op)[0];
  }
}

void VariantBinder::add_costs(VariantId v, MonetCosts& first, MonetCosts& again) const {
  const double scale = graph_.cost_unit() == CostUnit::kSecond ? 1e3 : 1e-9;
  const double workspace = static_cast<double>(graph_.workspace(v)) / kMib;
  first.workspace_mib.push_back(workspace);
  first.ms.push_back(graph_.cost(v) * scale);
  again.workspace_mib.push_back(workspace);
  again.ms.push_back(graph_.rerun_cost(v) * scale);
}

bool VariantBinder::plain_forward(VariantId v, OpId op) const {
  const VariantId base = graph_.default_variant(op);
  return !graph_.overwrites(v).valid() && std::ranges::equal(graph_.reads(v), graph_.reads(base)) &&
         std::ranges::equal(graph_.makes(v), graph_.makes(base));
}

void VariantBinder::offer_algorithms(std::uint32_t id) {
  const OpId op = binding_.ops[id];
  auto& choices = binding_.choices[id];
  MonetCosts first, again;
  for (VariantId v : graph_.variants(op)) {
    if (!plain_forward(v, op)) continue;
    choices.push_back({v.index() - graph_.default_variant(op).index(),
                       static_cast<std::uint32_t>(choices.size()),
                       false,
                       {}});
    add_costs(v, first, again);
  }
  if (choices.size() < 2 || id >= binding_.instance.loss) return;
  MonetInstance& instance = binding_.instance;
  node(id).first_run = node(id).in_place = first;
  node(id).rerun = again;
  instance.conv_list[id] = static_cast<std::uint32_t>(instance.conv_list.size());
  instance.num_conv_algos =
      std::max(instance.num_conv_algos, static_cast<std::int64_t>(choices.size()));
}

void VariantBinder::offer_in_place(std::uint32_t id) {
  const OpId op = binding_.ops[id];
  if (binding_.instance.conv_list.contains(id) || id >= binding_.instance.loss) return;
  for (VariantId v : graph_.variants(op)) {
    const TensorId input = graph_.overwrites(v);
    if (!input.valid() || graph_.fixed(input) || graph_.makes(v).size() != 1) continue;
    const std::uint32_t from = makers_[input];
    if (from == kNone || from >= id || last_reader_[from] != id) continue;
    binding_.choices[id].push_back({v.index() - graph_.default_variant(op).index(), 0, true, {}});
    MonetCosts costs, again;
    add_costs(v, costs, again);
    // As measured ones are: the output is not counted twice.
    costs.workspace_mib[0] -= static_cast<double>(node(id).mem) / kMib;
    node(id).in_place = costs;
    binding_.instance.inplace_list[id] = from;
    return;
  }
}

std::optional<std::vector<std::uint32_t>> VariantBinder::args_of(VariantId v,
                                                                 std::uint32_t id) const {
  std::vector<std::uint32_t> args;
  for (TensorId t : graph_.reads(v)) {
    if (graph_.fixed(t)) continue;
    if (makers_[t] == kNone || makers_[t] >= id) return std::nullopt;
    args.push_back(makers_[t]);
  }
  // The same nodes stand for gradients whichever variant runs.
  for (std::uint32_t arg : binding_.instance.nodes[id].args[0]) {
    if (arg >= binding_.instance.loss) args.push_back(arg);
  }
  std::sort(args.begin(), args.end());
  args.erase(std::unique(args.begin(), args.end()), args.end());
  return args;
}

void VariantBinder::offer_implementations(std::uint32_t id) {
  const OpId op = binding_.ops[id];
  const VariantId base = graph_.default_variant(op);
  auto& choices = binding_.choices[id];
  MonetCosts first, again;
  std::vector<std::vector<std::uint32_t>> lists;
  for (VariantId v : graph_.variants(op)) {
    const bool overwrites = graph_.overwrites(v).valid();
    if (graph_.makes(v).size() != graph_.outputs(op).size()) continue;
    auto args = v == base ? node(id).args[0] : args_of(v, id);
    if (!args) continue;
    const std::size_t choice = v.index() - base.index();
    if (overwrites && !lists.empty()) {
      // Stands in for the implementation of the same reads when its input is not needed again.
      const auto same = std::find(lists.begin(), lists.end(), *args);
      if (same == lists.end()) continue;
      choices.push_back({choice, static_cast<std::uint32_t>(same - lists.begin()), true, {}});
      continue;
    }
    choices.push_back({choice, static_cast<std::uint32_t>(lists.size()), overwrites, {}});
    lists.push_back(std::move(*args));
    add_costs(v, first, again);
  }
  MonetInstance& instance = binding_.instance;
  for (std::uint32_t p = 1; p < lists.size(); ++p) {
    for (std::uint32_t arg : lists[p]) instance.edges.push_back({arg, id, p});
  }
  node(id).args = std::move(lists);
  node(id).first_run = node(id).in_place = first;
  node(id).rerun = again;
}

void VariantBinder::run() {
  bind_ops();
  last_reader_.assign(binding_.instance.loss + 1, 0);
  for (const MonetEdge& edge : binding_.instance.edges) {
    if (edge.to > binding_.instance.loss) continue;
    last_reader_[edge.from] = std::max(last_reader_[edge.from], edge.to);
  }
  binding_.choices.resize(binding_.ops.size());
  for (std::uint32_t id = 0; id < binding_.ops.size(); ++id) {
    if (!binding_.ops[id].valid()) continue;
    if (id > binding_.instance.loss) {
      offer_implementations(id);
    } else {
      offer_algorithms(id);
      offer_in_place(id);
    }
  }
}

}  // namespace

Result<MonetBinding> bind_monet(const Graph& graph) {
  MonetBinding binding;
  REGEN_ASSIGN(binding.instance, monet_from_graph(graph));
  const auto rebuilt = graph_from_monet(binding.instance, "");
  if (rebuilt.ok() && *rebuilt == graph) {
    bind_imported(graph, binding);
  } else {
    VariantBinder(graph, binding).run();
  }
  return binding;
}

}  // namespace regen
