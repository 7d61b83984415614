#include <algorithm>
#include <optional>

#include "regen/base/text.h"
#include "regen/published/monet/format/format_monet_json.h"

namespace regen::published {
namespace {

constexpr double kMib = 1 << 20;
constexpr std::size_t kMaxLocalTensors = 50'000'000;

// The "monet" object inside an attribute text, or null.
Json carried(const std::string& attributes) {
  if (attributes.empty()) return nullptr;
  auto object = parse_json(attributes, "");
  if (!object.ok() || !object->is_object() || !object->contains("monet")) return nullptr;
  return std::move((*object)["monet"]);
}

bool take_node(const Json& fields, std::vector<std::optional<MonetNode>>& nodes) {
  if (!fields.is_object() || !fields.contains("id") || !fields["id"].is_number_unsigned()) {
    return false;
  }
  const auto id = fields["id"].get<std::uint64_t>();
  if (id >= nodes.size() || nodes[id]) return false;
  auto node = read_monet_node(JsonCursor(fields, ""), id, nodes.size());
  if (!node.ok()) return false;
  nodes[id] = std::move(*node);
  return true;
}

// The instance that the graph says it came from, if its attributes are whole.
std::optional<MonetInstance> carried_instance(const Graph& graph) {
  Json header = carried(graph.attributes());
  if (!header.is_object() || !header.contains("nodes")) return std::nullopt;
  if (!header["nodes"].is_number_unsigned()) return std::nullopt;
  const auto size = header["nodes"].get<std::uint64_t>();
  if (size == 0 || size > graph.num_tensors()) return std::nullopt;
  auto instance = read_monet_header(JsonCursor(header, ""), size);
  if (!instance.ok()) return std::nullopt;
  std::vector<std::optional<MonetNode>> nodes(size);
  for (OpId op : graph.ops()) {
    if (!take_node(carried(graph.attributes(op)), nodes)) return std::nullopt;
  }
  for (TensorId t : graph.tensors()) {
    if (graph.attributes(t).empty()) continue;
    if (!take_node(carried(graph.attributes(t)), nodes)) return std::nullopt;
  }
  for (auto& node : nodes) {
    if (!node) return std::nullopt;
    instance->nodes.push_back(std::move(*node));
  }
  if (!check_monet_instance(*instance, JsonCursor(header, "")).ok()) return std::nullopt;
  return std::move(*instance);
}

class Exporter {
 public:
  explicit Exporter(const Graph& graph) : graph_(graph) {}

  Result<MonetInstance> run();

 private:
  Error refuse(OpId op, const std::string& problem) const {
    return bad_input("op " + std::to_string(op.index()) + " " + in_quotes(graph_.name(op)) + " " +
                     problem);
  }
  Status sort_ops();
  Status add_node(OpId op);
  void add_missing_loss();
  Status set_sizes(OpId op, MonetNode& node);
  Status set_args(OpId op, MonetNode& node) const;
  void set_costs(OpId op, MonetNode& node) const;
  Status set_local_tensors();

  const Graph& graph_;
  MonetInstance instance_;
  std::vector<OpId> forward_;
  std::vector<OpId> backward_;
  OpId loss_;
  IdVector<TensorId, std::uint32_t> nodes_;  // the node that makes the tensor
  Bytes fixed_ = 0;
};

constexpr std::uint32_t kNone = UINT32_MAX;

Status Exporter::sort_ops() {
  for (OpId op : graph_.ops()) {
    switch (graph_.phase(op)) {
      case Phase::kForward:
        forward_.push_back(op);
        break;
      case Phase::kBackward:
        backward_.push_back(op);
        break;
      case Phase::kUpdate:
        break;
      case Phase::kLoss:
        if (loss_.valid()) forward_.push_back(loss_);
        loss_ = op;
    }
  }
  std::sort(forward_.begin(), forward_.end());
  if (forward_.empty()) return bad_input("no forward op found, expected one before the loss");
  if (backward_.empty()) {
    return bad_input("no backward op found, expected a whole training step");
  }
  return {};
}

Status Exporter::set_args(OpId op, MonetNode& node) const {
  const std::size_t id = instance_.nodes.size();
  std::vector<std::uint32_t> args;
  for (TensorId t : graph_.reads(graph_.default_variant(op))) {
    if (graph_.fixed(t)) continue;
    if (nodes_[t] == kNone) {
      return refuse(op, "reads tensor " + std::to_string(t.index()) + " " +
                            in_quotes(graph_.name(t)) +
                            ", which no default variant of an earlier phase makes");
    }
    args.push_back(nodes_[t]);
  }
  // Where no gradient comes in, the loss gives the first one.
  const auto has_gradient = [&](std::uint32_t arg) { return arg >= instance_.loss; };
  if (id > instance_.loss && std::none_of(args.begin(), args.end(), has_gradient)) {
    args.push_back(instance_.loss);
  }
  std::sort(args.begin(), args.end());
  args.erase(std::unique(args.begin(), args.end()), args.end());
  node.args.push_back(std::move(args));
  return {};
}

void Exporter::set_costs(OpId op, MonetNode& node) const {
  const VariantId v = graph_.default_variant(op);
  const double scale = graph_.cost_unit() == CostUnit::kSecond ? 1e3 : 1e-9;
  const std::vector<double> workspace{static_cast<double>(graph_.workspace(v)) / kMib};
  node.first_run = {workspace, {graph_.cost(v) * scale}};
  node.rerun = {workspace, {graph_.rerun_cost(v) * scale}};
  node.in_place = node.first_run;
}

Status Exporter::set_sizes(OpId op, MonetNode& node) {
  const auto made = graph_.makes(graph_.default_variant(op));
  if (node.kind == MonetKind::kForward && made.size() != 1) {
    return refuse(op, "makes " + std::to_string(made.size()) +
                          " tensors, expected 1: a MONeT instance has forward ops of one output");
  }
  for (TensorId t : made) {
    const bool kept = graph_.kind(t) == TensorKind::kOutput && node.kind == MonetKind::kBackward;
    (kept ? fixed_ : node.mem) += graph_.bytes(t);
    nodes_[t] = static_cast<std::uint32_t>(instance_.nodes.size());
  }
  node.fixed_mem = fixed_;
  if (node.kind == MonetKind::kForward) node.shape = {-1, (node.mem + 3) / 4};
  return {};
}

Status Exporter::add_node(OpId op) {
  MonetNode node;
  if (instance_.nodes.size() > instance_.loss) node.kind = MonetKind::kBackward;
  node.op = graph_.type(op).empty() ? graph_.name(op) : graph_.type(op);
  REGEN_TRY(set_args(op, node));
  REGEN_TRY(set_sizes(op, node));
  set_costs(op, node);
  if (node.kind == MonetKind::kBackward) {
    node.bwd_op = "ip_grad";
    for (std::uint32_t arg : node.args[0]) {
      if (arg < instance_.loss) node.fwd_id = std::max(node.fwd_id, arg);
    }
  }
  instance_.nodes.push_back(std::move(node));
  return {};
}

void Exporter::add_missing_loss() {
  MonetNode node = instance_.nodes.back();
  node.op = "loss::loss";
  node.args = {{static_cast<std::uint32_t>(instance_.nodes.size() - 1)}};
  node.first_run = node.rerun = node.in_place = {{0}, {0}};
  instance_.nodes.push_back(std::move(node));
}

// A node is local from its maker to its last reader; forward values are not kept for the
// backward pass.
Status Exporter::set_local_tensors() {
  std::vector<std::uint32_t> last(instance_.nodes.size(), 0);
  for (const MonetEdge& edge : instance_.edges) {
    const bool crosses = edge.from < instance_.loss && edge.to > instance_.loss;
    if (!crosses) last[edge.from] = std::max(last[edge.from], edge.to);
  }
  std::vector<std::uint32_t> local;
  std::size_t total = 0;
  for (std::uint32_t id = 0; id < instance_.nodes.size(); ++id) {
    MonetNode& node = instance_.nodes[id];
    std::erase_if(local, [&](std::uint32_t other) { return last[other] < id; });
    node.local_tensors = local;
    for (std::uint32_t other : local) node.local_memory += instance_.nodes[other].mem;
    local.push_back(id);
    total += local.size();
    if (total > kMaxLocalTensors) {
      return bad_input("the lists of local tensors have more than " +
                       std::to_string(kMaxLocalTensors) + " entries");
    }
  }
  return {};
}

Result<MonetInstance> Exporter::run() {
  REGEN_TRY(sort_ops());
  nodes_.assign(graph_.num_tensors(), kNone);
  fixed_ = graph_.fixed_bytes();
  instance_.model = graph_.name();
  instance_.mode = graph_.name();
  instance_.batch = 1;
  instance_.loss = static_cast<std::uint32_t>(forward_.size());
  for (OpId op : forward_) REGEN_TRY(add_node(op));
  if (loss_.valid()) {
    REGEN_TRY(add_node(loss_));
  } else {
    add_missing_loss();
  }
  for (OpId op : backward_) REGEN_TRY(add_node(op));
  for (std::uint32_t id = 0; id < instance_.nodes.size(); ++id) {
    for (std::uint32_t arg : instance_.nodes[id].args[0]) instance_.edges.push_back({arg, id, 0});
  }
  REGEN_TRY(set_local_tensors());
  return std::move(instance_);
}

}  // namespace

Result<MonetInstance> monet_from_graph(const Graph& graph) {
  if (auto instance = carried_instance(graph)) {
    // Attributes may be stale: costs may have been measured anew since.
    const auto rebuilt = graph_from_monet(*instance, "");
    if (rebuilt.ok() && *rebuilt == graph) return std::move(*instance);
  }
  auto instance = Exporter(graph).run();
  if (!instance.ok()) {
    return bad_input("graph " + in_quotes(graph.name()) + ": " + instance.error().message);
  }
  return instance;
}

}  // namespace regen::published
