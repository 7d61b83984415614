#include <algorithm>
#include <cmath>

#include "regen/graph/builder.h"
#include "regen/published/monet/format/format_monet_json.h"

namespace regen::published {
namespace {

constexpr double kMib = 1 << 20;
// Reads over all variants: a small text must not ask for a huge graph.
constexpr std::size_t kMaxLinks = 10'000'000;

Bytes to_bytes(double mib) {
  return static_cast<Bytes>(std::llround(mib * kMib));
}

double to_seconds(double ms) {
  return std::max(ms, 0.0) / 1000;
}

class Importer {
 public:
  Importer(const MonetInstance& instance, const std::string& source)
      : instance_(instance), source_(source), builder_(instance.mode, CostUnit::kSecond) {}

  Result<Graph> run();

 private:
  const MonetNode& node(std::size_t id) const { return instance_.nodes[id]; }
  std::string name(std::size_t id) const { return node(id).op + "#" + std::to_string(id); }
  bool is_conv(std::uint32_t id) const { return instance_.conv_list.contains(id); }

  void add_tensors();
  Status add_forward(std::uint32_t id);
  Status add_backward(std::uint32_t id);
  Status finish(OpSpec op, std::uint32_t id);
  void add_algorithms(std::uint32_t id, OpSpec& op) const;
  void add_implementations(std::uint32_t id, OpSpec& op) const;
  void add_forward_variants(std::uint32_t id, TensorId overwritten, OpSpec& op) const;
  VariantSpec forward_variant(std::uint32_t id, bool in_place) const;
  VariantSpec variant(const MonetNode& from, std::size_t entry) const;
  TensorId overwritable(std::uint32_t id, const std::vector<std::uint32_t>& args) const;
  std::vector<TensorId> tensors(const std::vector<std::uint32_t>& nodes) const;

  const MonetInstance& instance_;
  const std::string& source_;
  GraphBuilder builder_;
  std::vector<std::vector<std::uint32_t>> intermediates_;  // by parent
  TensorId fixed_;
  std::size_t links_ = 0;
};

std::vector<TensorId> Importer::tensors(const std::vector<std::uint32_t>& nodes) const {
  std::vector<TensorId> list;
  list.reserve(nodes.size());
  for (std::uint32_t id : nodes) list.push_back(TensorId(id));
  return list;
}

void Importer::add_tensors() {
  for (std::uint32_t id = 0; id < instance_.nodes.size(); ++id) {
    TensorSpec tensor{.name = name(id), .bytes = node(id).mem};
    // The loss node stands for the gradient of the network's output.
    if (id >= instance_.loss) tensor.kind = TensorKind::kGradient;
    if (node(id).kind == MonetKind::kIntermediate) {
      intermediates_[node(id).parent].push_back(id);
      tensor.attributes = Json{{"monet", monet_node_json(node(id), id)}}.dump();
    }
    builder_.add_tensor(std::move(tensor));
  }
  fixed_ = builder_.add_tensor(
      {.name = "inputs and parameters", .bytes = node(0).fixed_mem, .kind = TensorKind::kParam});
}

// The entry's costs without anything in place. A graph has one workspace a variant, so the larger
// of first run and re-run counts.
VariantSpec Importer::variant(const MonetNode& from, std::size_t entry) const {
  const double workspace =
      std::max(from.first_run.workspace_mib[entry], from.rerun.workspace_mib[entry]);
  return {.cost = to_seconds(from.first_run.ms[entry]),
          .rerun_cost = to_seconds(from.rerun.ms[entry]),
          .workspace = std::max<Bytes>(to_bytes(workspace), 0)};
}

void Importer::add_algorithms(std::uint32_t id, OpSpec& op) const {
  for (std::size_t c = 0; c < node(id).first_run.ms.size(); ++c) {
    if (node(id).first_run.ms[c] < 0 || node(id).rerun.ms[c] < 0) continue;
    op.variants.push_back(variant(node(id), c));
    op.variants.back().name = "algorithm" + std::to_string(c);
  }
}

// A measured in-place workspace has the output subtracted although none was allocated.
VariantSpec Importer::forward_variant(std::uint32_t id, bool in_place) const {
  VariantSpec result = variant(node(id), 0);
  result.name = in_place ? "in_place" : "plain";
  if (in_place) {
    result.cost = to_seconds(node(id).in_place.ms[0]);
    result.rerun_cost = result.cost;
    result.workspace =
        std::max<Bytes>(to_bytes(node(id).in_place.workspace_mib[0]) + node(id).mem, 0);
  }
  return result;
}

void Importer::add_forward_variants(std::uint32_t id, TensorId overwritten, OpSpec& op) const {
  const bool in_place = overwritten.valid();
  const VariantSpec alone = forward_variant(id, in_place);
  op.variants.push_back(alone);
  op.variants.back().overwrites = overwritten;
  for (std::uint32_t extra : intermediates_[id]) {
    const MonetNode& item = node(extra);
    VariantSpec with = variant(item, 0);
    // An intermediate node is charged what it costs beyond its parent, which may be less than 0.
    const MonetCosts& first = in_place ? item.in_place : item.first_run;
    const MonetCosts& again = in_place ? item.in_place : item.rerun;
    with.name = alone.name + "+" + item.op;
    with.cost = std::max(alone.cost + first.ms[0] / 1000, 0.0);
    with.rerun_cost = std::max(*alone.rerun_cost + again.ms[0] / 1000, 0.0);
    if (in_place) with.workspace = to_bytes(first.workspace_mib[0]) + node(id).mem;
    with.workspace = std::max({with.workspace, alone.workspace, Bytes{0}});
    with.extra_outputs = {TensorId(extra)};
    with.overwrites = overwritten;
    op.variants.push_back(std::move(with));
  }
}

Status Importer::add_forward(std::uint32_t id) {
  OpSpec op{.name = name(id),
            .type = node(id).op,
            .phase = id == instance_.loss ? Phase::kLoss : Phase::kForward,
            .inputs = tensors(node(id).args[0]),
            .outputs = {TensorId(id)},
            .random = node(id).op.find("dropout") != std::string::npos};
  if (op.inputs.empty()) op.inputs.push_back(fixed_);
  if (is_conv(id)) {
    add_algorithms(id, op);
    return finish(std::move(op), id);
  }
  add_forward_variants(id, TensorId::none(), op);
  const auto listed = instance_.inplace_list.find(id);
  const TensorId input = listed != instance_.inplace_list.end() ? TensorId(listed->second)
                         : node(id).first_run.workspace_mib[0] < 0
                             ? overwritable(id, node(id).args[0])
                             : TensorId::none();
  const bool read = std::find(op.inputs.begin(), op.inputs.end(), input) != op.inputs.end();
  if (input.valid() && read && node(input.index()).mem >= node(id).mem) {
    add_forward_variants(id, input, op);
  }
  return finish(std::move(op), id);
}

// The first of the args that is large enough to hold the output; gradients only, backward.
TensorId Importer::overwritable(std::uint32_t id, const std::vector<std::uint32_t>& args) const {
  for (std::uint32_t arg : args) {
    const bool fits = node(arg).mem >= node(id).mem;
    if (fits && (node(id).kind == MonetKind::kForward || arg >= instance_.loss)) {
      return TensorId(arg);
    }
  }
  return TensorId::none();
}

void Importer::add_implementations(std::uint32_t id, OpSpec& op) const {
  std::vector<VariantSpec> overwriting;
  for (std::size_t p = 0; p < node(id).args.size(); ++p) {
    VariantSpec plain = variant(node(id), p);
    plain.name = "implementation" + std::to_string(p);
    plain.reads = tensors(node(id).args[p]);
    const double mib = node(id).first_run.workspace_mib[p];
    const TensorId gradient = overwritable(id, node(id).args[p]);
    if (mib < 0 && gradient.valid()) {
      VariantSpec in_place = plain;
      in_place.name += "_in_place";
      in_place.workspace = std::max<Bytes>(to_bytes(mib) + node(id).mem, 0);
      in_place.overwrites = gradient;
      overwriting.push_back(std::move(in_place));
    }
    op.variants.push_back(std::move(plain));
  }
  std::move(overwriting.begin(), overwriting.end(), std::back_inserter(op.variants));
}

Status Importer::add_backward(std::uint32_t id) {
  OpSpec op{.name = name(id),
            .type = node(id).op,
            .phase = Phase::kBackward,
            .inputs = tensors(node(id).args[0]),
            .outputs = {TensorId(id)}};
  if (is_conv(id)) {
    add_algorithms(id, op);
  } else {
    add_implementations(id, op);
  }
  if (const Bytes grown = node(id).fixed_mem - node(id - 1).fixed_mem; grown > 0) {
    op.outputs.push_back(builder_.add_tensor(
        {.name = name(id) + "/parameters", .bytes = grown, .kind = TensorKind::kOutput}));
  }
  return finish(std::move(op), id);
}

Status Importer::finish(OpSpec op, std::uint32_t id) {
  const auto where = [&] { return source_ + ": nodes[" + std::to_string(id) + "]: "; };
  if (op.variants.empty()) {
    return bad_input(where() + "every algorithm failed, expected at least one of 0 ms or more");
  }
  const std::size_t extras = intermediates_[id].size();
  links_ += op.variants.size() * (op.inputs.size() + op.outputs.size()) + extras * extras;
  if (links_ > kMaxLinks) {
    return bad_input(where() + "the reads over all variants are more than " +
                     std::to_string(kMaxLinks));
  }
  op.attributes = Json{{"monet", monet_node_json(node(id), id)}}.dump();
  builder_.add_op(std::move(op));
  return {};
}

Result<Graph> Importer::run() {
  intermediates_.resize(instance_.nodes.size());
  add_tensors();
  Json header = monet_header_json(instance_);
  header["nodes"] = instance_.nodes.size();
  builder_.set_attributes(Json{{"monet", std::move(header)}}.dump());
  for (std::uint32_t id = 0; id < instance_.nodes.size(); ++id) {
    if (node(id).kind == MonetKind::kForward) REGEN_TRY(add_forward(id));
    if (node(id).kind == MonetKind::kBackward) REGEN_TRY(add_backward(id));
  }
  auto graph = std::move(builder_).build();
  if (!graph.ok()) return bad_input(source_ + ": " + graph.error().message);
  return graph;
}

}  // namespace

Result<Graph> graph_from_monet(const MonetInstance& instance, const std::string& source) {
  return Importer(instance, source).run();
}

}  // namespace regen::published
