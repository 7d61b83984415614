#include "regen/published/monet/monet_export.h"

#include <algorithm>

#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kScaledBaseMs = 1e5;  // of a step whose costs are in flop
constexpr std::size_t kMaxLocalTensors = 50'000'000;
constexpr std::uint32_t kNone = UINT32_MAX;

class Exporter {
 public:
  explicit Exporter(const Graph& graph) : graph_(graph), nodes_of_(graph.num_tensors(), kNone) {}
  Result<MonetBinding> run();

 private:
  MonetNode& node(std::uint32_t id) { return binding_.instance.nodes[id]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(binding_.instance.nodes.size()); }
  std::size_t choice_of(VariantId v) const {
    return v.index() - graph_.default_variant(graph_.op(v)).index();
  }
  std::uint32_t add_node(OpId op, MonetKind kind);
  void add_forward(OpId op, bool last);
  void add_intermediates(std::uint32_t parent);
  void add_loss_if_none();
  void add_backward(OpId op);
  void set_bytes(std::uint32_t id, VariantId v);
  void set_algorithms(std::uint32_t id);
  void set_in_place();
  bool offer_in_place(std::uint32_t id, VariantId v, const std::vector<std::uint32_t>& last_reader);
  void set_implementations(std::uint32_t id);
  Status set_local_tensors();
  std::vector<std::uint32_t> args_of(VariantId v) const;
  void add_cost(VariantId v, MonetNode& to) const;

  const Graph& graph_;
  MonetBinding binding_;
  IdVector<TensorId, std::uint32_t> nodes_of_;  // the node that makes the tensor
  double scale_ = 1e3;
  Bytes fixed_ = 0;
  std::uint32_t forward_ = 0;  // nodes up to the loss
};

void Exporter::add_cost(VariantId v, MonetNode& to) const {
  const double workspace = static_cast<double>(graph_.workspace(v)) / kMib;
  for (MonetCosts* costs : {&to.first_run, &to.rerun, &to.in_place}) {
    costs->workspace_mib.push_back(workspace);
    costs->ms.push_back((costs == &to.rerun ? graph_.rerun_cost(v) : graph_.cost(v)) * scale_);
  }
}

std::vector<std::uint32_t> Exporter::args_of(VariantId v) const {
  std::vector<std::uint32_t> args;
  for (TensorId t : graph_.reads(v)) {
    if (!graph_.fixed(t) && nodes_of_[t] != kNone) args.push_back(nodes_of_[t]);
  }
  std::sort(args.begin(), args.end());
  args.erase(std::unique(args.begin(), args.end()), args.end());
  return args;
}

std::uint32_t Exporter::add_node(OpId op, MonetKind kind) {
  MonetNode node;
  node.kind = kind;
  if (op.valid()) node.op = graph_.name(op);
  node.fixed_mem = fixed_;
  binding_.instance.nodes.push_back(std::move(node));
  binding_.ops.push_back(kind == MonetKind::kIntermediate ? OpId::none() : op);
  binding_.choices.emplace_back();
  return size() - 1;
}

// Results of the step are never dropped: they count as fixed from their making on.
void Exporter::set_bytes(std::uint32_t id, VariantId v) {
  for (TensorId t : graph_.makes(v)) {
    (graph_.kind(t) == TensorKind::kOutput ? fixed_ : node(id).mem) += graph_.bytes(t);
    nodes_of_[t] = id;
  }
  node(id).fixed_mem = fixed_;
}

void Exporter::add_forward(OpId op, bool last) {
  const VariantId base = search::base_variant(graph_, op);
  const std::uint32_t id = add_node(op, MonetKind::kForward);
  node(id).args = {args_of(base)};
  set_bytes(id, base);
  add_cost(base, node(id));
  binding_.choices[id].push_back({choice_of(base), 0, graph_.overwrites(base).valid(), {}});
  // The role of the loss is that of the last node; nothing may come after it.
  if (last) return;
  set_algorithms(id);
  if (!binding_.instance.conv_list.contains(id)) add_intermediates(id);
}

void Exporter::set_algorithms(std::uint32_t id) {
  const OpId op = binding_.ops[id];
  const VariantId base = search::base_variant(graph_, op);
  MonetInstance& instance = binding_.instance;
  if (graph_.overwrites(base).valid()) return;
  auto& choices = binding_.choices[id];
  for (VariantId v : graph_.variants(op)) {
    if (v == base || graph_.overwrites(v).valid() ||
        !std::ranges::equal(graph_.reads(v), graph_.reads(base)) ||
        !std::ranges::equal(graph_.makes(v), graph_.makes(base))) {
      continue;
    }
    choices.push_back({choice_of(v), static_cast<std::uint32_t>(choices.size()), false, {}});
    add_cost(v, node(id));
  }
  if (choices.size() < 2) return;
  instance.conv_list[id] = static_cast<std::uint32_t>(instance.conv_list.size());
  instance.num_conv_algos = std::max<std::int64_t>(instance.num_conv_algos, std::ssize(choices));
}

void Exporter::add_intermediates(std::uint32_t parent) {
  const OpId op = binding_.ops[parent];
  const VariantId base = search::base_variant(graph_, op);
  for (VariantId v : graph_.variants(op)) {
    const auto made = graph_.makes(v);
    const auto plain = graph_.makes(base);
    if (made.size() != plain.size() + 1 || graph_.overwrites(v).valid() ||
        graph_.overwrites(base).valid() ||
        !std::ranges::equal(graph_.reads(v), graph_.reads(base)) ||
        !std::equal(plain.begin(), plain.end(), made.begin()) || nodes_of_[made.back()] != kNone) {
      continue;
    }
    const std::uint32_t id = add_node(op, MonetKind::kIntermediate);
    node(id).parent = parent;
    node(id).op_idx = static_cast<std::uint32_t>(choice_of(v));
    node(id).args = {{parent}};
    node(id).mem = graph_.bytes(made.back());
    nodes_of_[made.back()] = id;
    add_cost(v, node(id));
    // Charged with what it costs beyond its op, as far as it does.
    node(id).first_run.ms[0] = std::max(0.0, (graph_.cost(v) - graph_.cost(base)) * scale_);
    node(id).rerun.ms[0] = std::max(0.0, (graph_.rerun_cost(v) - graph_.rerun_cost(base)) * scale_);
    node(parent).intermediates.push_back({node(id).op_idx, id});
    binding_.choices[parent].push_back({choice_of(v), 0, false, {id}});
  }
}

void Exporter::add_loss_if_none() {
  forward_ = size();
  if (forward_ == 0) {
    const std::uint32_t id = add_node(OpId::none(), MonetKind::kForward);
    node(id).args = {{}};
    for (MonetCosts* costs : {&node(id).first_run, &node(id).rerun, &node(id).in_place}) {
      *costs = {{0}, {0}};
    }
    forward_ = 1;
  }
  binding_.instance.loss = forward_ - 1;
}

bool Exporter::offer_in_place(std::uint32_t id, VariantId v,
                              const std::vector<std::uint32_t>& last_reader) {
  const OpId op = binding_.ops[id];
  const VariantId base = search::base_variant(graph_, op);
  const TensorId input = graph_.overwrites(v);
  if (v == base || !input.valid() || graph_.fixed(input) || graph_.overwrites(base).valid() ||
      !std::ranges::equal(graph_.makes(v), graph_.makes(base)) ||
      !std::ranges::equal(graph_.reads(v), graph_.reads(base)) ||
      graph_.kind(input) == TensorKind::kOutput || nodes_of_[input] == kNone) {
    return false;
  }
  const std::uint32_t from = nodes_of_[input];
  const bool whole = binding_.ops[from].valid() &&
                     graph_.makes(search::base_variant(graph_, binding_.ops[from])).size() == 1;
  if (!whole || last_reader[from] != id) return false;
  binding_.choices[id].push_back({choice_of(v), 0, true, {}});
  // The output takes over the input's bytes.
  const double saved = static_cast<double>(graph_.bytes(graph_.outputs(op)[0])) / kMib;
  node(id).in_place = {
      {static_cast<double>(graph_.workspace(v)) / kMib - saved},
      {std::max(graph_.cost(v), graph_.cost(base) - graph_.rerun_cost(base)) * scale_}};
  binding_.instance.inplace_list[id] = from;
  return true;
}

void Exporter::set_in_place() {
  std::vector<std::uint32_t> last_reader(forward_, 0);
  for (std::uint32_t id = 0; id < forward_; ++id) {
    for (std::uint32_t arg : node(id).args[0]) last_reader[arg] = id;
  }
  for (std::uint32_t id = 0; id + 1 < forward_; ++id) {
    if (!binding_.ops[id].valid() || binding_.instance.conv_list.contains(id)) continue;
    for (VariantId v : graph_.variants(binding_.ops[id])) {
      if (offer_in_place(id, v, last_reader)) break;
    }
  }
}

void Exporter::add_backward(OpId op) {
  const std::uint32_t id = add_node(op, MonetKind::kBackward);
  node(id).bwd_op = "ip_grad";
  node(id).fwd_id = kNone;  // no forward op of its own: modes treat its implementations alike
  set_implementations(id);
  set_bytes(id, search::base_variant(graph_, op));
}

void Exporter::set_implementations(std::uint32_t id) {
  const OpId op = binding_.ops[id];
  const VariantId base = search::base_variant(graph_, op);
  auto& choices = binding_.choices[id];
  std::vector<std::vector<TensorId>> reads;
  const auto add = [&](VariantId v) {
    choices.push_back(
        {choice_of(v), static_cast<std::uint32_t>(reads.size()), graph_.overwrites(v).valid(), {}});
    reads.emplace_back(graph_.reads(v).begin(), graph_.reads(v).end());
    node(id).args.push_back(args_of(v));
    add_cost(v, node(id));
  };
  add(base);
  const auto usable = [&](VariantId v) {
    return v != base && std::ranges::equal(graph_.makes(v), graph_.makes(base)) &&
           std::ranges::all_of(graph_.reads(v), [&](TensorId t) {
             return graph_.fixed(t) || nodes_of_[t] != kNone;
           });
  };
  for (VariantId v : graph_.variants(op)) {
    if (usable(v) && !graph_.overwrites(v).valid()) add(v);
  }
  for (VariantId v : graph_.variants(op)) {
    if (!usable(v) || !graph_.overwrites(v).valid()) continue;
    const auto same = std::find_if(reads.begin(), reads.end(), [&](const auto& list) {
      return std::ranges::equal(list, graph_.reads(v));
    });
    if (same == reads.end()) continue;
    choices.push_back({choice_of(v), static_cast<std::uint32_t>(same - reads.begin()), true, {}});
  }
}

// A forward value is local from its maker to its last forward reader, any other one to its last
// reader. A by-product is made while its op's inputs are still there.
Status Exporter::set_local_tensors() {
  const std::uint32_t nodes = size();
  std::vector<std::uint32_t> last(nodes, 0);
  for (std::uint32_t id = 0; id < nodes; ++id) {
    const auto& from = node(id).kind == MonetKind::kIntermediate ? node(node(id).parent) : node(id);
    for (const auto& list : from.args) {
      for (std::uint32_t arg : list) {
        if (id < forward_ || arg >= forward_) last[arg] = std::max(last[arg], id);
      }
    }
  }
  std::vector<std::uint32_t> local;
  std::size_t total = 0;
  for (std::uint32_t id = 0; id < nodes; ++id) {
    std::erase_if(local, [&](std::uint32_t other) {
      return last[other] < id || (id >= forward_ && other < forward_);
    });
    if (node(id).kind == MonetKind::kIntermediate)
      last[node(id).parent] = std::max(last[node(id).parent], id);
    node(id).local_tensors = local;
    for (std::uint32_t other : local) node(id).local_memory += node(other).mem;
    local.push_back(id);
    total += local.size();
    if (total > kMaxLocalTensors) {
      return limit_reached("the lists of local tensors have more than " +
                           std::to_string(kMaxLocalTensors) + " entries");
    }
  }
  return {};
}

Result<MonetBinding> Exporter::run() {
  REGEN_TRY(search::check_sequences_possible(graph_));
  fixed_ = graph_.fixed_bytes();
  if (graph_.cost_unit() != CostUnit::kSecond) {
    scale_ = kScaledBaseMs / std::max(graph_.base_cost(), 1e-300);
  }
  binding_.instance.model = binding_.instance.mode = graph_.name();
  std::size_t cut = 0;
  const auto is_forward = [&](std::size_t op) { return graph_.phase(OpId(op)) <= Phase::kLoss; };
  while (cut < graph_.num_ops() && is_forward(cut)) ++cut;
  for (std::size_t op = 0; op < cut; ++op) add_forward(OpId(op), op + 1 == cut);
  add_loss_if_none();
  set_in_place();
  for (std::size_t op = cut; op < graph_.num_ops(); ++op) add_backward(OpId(op));
  for (std::uint32_t id = 0; id < size(); ++id) {
    for (std::uint32_t p = 0; p < node(id).args.size(); ++p) {
      for (std::uint32_t arg : node(id).args[p]) binding_.instance.edges.push_back({arg, id, p});
    }
  }
  REGEN_TRY(set_local_tensors());
  const IdVector<OpId, char> repeatable = search::repeatable_ops(graph_, /*forward_only=*/true);
  for (std::uint32_t id = 0; id < forward_; ++id) {
    const std::uint32_t owner = node(id).kind == MonetKind::kIntermediate ? node(id).parent : id;
    const OpId op = binding_.ops[owner];
    const bool overwrites =
        op.valid() && graph_.overwrites(search::base_variant(graph_, op)).valid();
    binding_.once.push_back(op.valid() && (!repeatable[op] || overwrites) ? 1 : 0);
  }
  return std::move(binding_);
}

}  // namespace

Result<MonetBinding> export_monet(const Graph& graph) {
  return Exporter(graph).run();
}

}  // namespace regen::published
