#include <algorithm>
#include <limits>
#include <span>

#include "regen/base/json.h"
#include "regen/base/text.h"
#include "regen/graph/builder.h"
#include "regen/graph/format_order.h"
#include "regen/published/lower_sets/format/format_lower_sets.h"

namespace regen::published {
namespace {

using Edges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

bool is_number(std::string_view name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

class Importer {
 public:
  Importer(const LowerSetFile& file, const std::string& source)
      : file_(file), source_(source), builder_("lower-sets") {}

  Result<Graph> run();

 private:
  // The gradient of a variable while its makers run one after the other.
  struct Gradient {
    std::uint32_t makers = 0;  // outputs of backward blocks that name the variable
    std::uint32_t made = 0;
    TensorId sum;  // of those made so far
  };

  std::size_t num_forward() const { return file_.blocks.size() / 2; }
  const LowerSetBlock& block(std::size_t i) const { return file_.blocks[i]; }

  void describe_blocks();
  Status find_makers();
  Result<std::vector<std::uint32_t>> forward_order() const;
  Result<std::vector<std::uint32_t>> backward_order(
      const std::vector<std::uint32_t>& forward) const;
  void add_variables();
  void add_forward(std::uint32_t index);
  void add_backward(std::uint32_t index);
  TensorId add_partial(std::uint32_t variable);
  void accumulate(std::uint32_t variable, TensorId partial);
  std::string carried(std::uint32_t index) const;
  std::string tensor_name(std::uint32_t variable) const;
  bool is_loss(std::size_t index) const { return !read_forward_[block(index).outputs[0]]; }
  Error cycle_error(const std::vector<std::uint32_t>& cycle) const;

  const LowerSetFile& file_;
  const std::string& source_;
  GraphBuilder builder_;
  std::vector<std::string> names_;     // by block; a backward block has its twin's
  std::vector<std::uint64_t> ranks_;   // by forward block
  std::vector<std::uint32_t> makers_;  // by variable, the forward block or kNone
  std::vector<bool> read_forward_;     // by variable
  std::vector<Gradient> gradients_;    // by variable
};

// Rank and name come from the attributes where they are given.
void Importer::describe_blocks() {
  for (std::size_t i = 0; i < num_forward(); ++i) {
    std::string name = block(i).type + "_" + std::to_string(i);
    std::uint64_t rank = 0;
    if (const auto attributes = parse_json(block(i).attributes, ""); attributes.ok()) {
      for (auto it = attributes->begin(); it != attributes->end(); ++it) {
        if (it.key() == "rank" && it->is_number_unsigned()) {
          rank = std::min<std::uint64_t>(it->get<std::uint64_t>(), INT32_MAX);
        }
        if (it.key() == "name" && it->is_string()) name = it->get<std::string>();
      }
    }
    names_.push_back(std::move(name));
    ranks_.push_back(rank);
  }
}

Status Importer::find_makers() {
  makers_.assign(file_.variables.size(), kNone);
  read_forward_.assign(file_.variables.size(), false);
  gradients_.assign(file_.variables.size(), {});
  for (std::uint32_t i = 0; i < num_forward(); ++i) {
    const std::uint32_t output = block(i).outputs[0];
    if (makers_[output] != kNone) {
      return bad_input(source_ + ": variable " + std::to_string(output) +
                       " is made twice, by the forward blocks " + std::to_string(makers_[output]) +
                       " and " + std::to_string(i));
    }
    makers_[output] = i;
    for (const LowerSetRead& read : block(i).inputs) read_forward_[read.variable] = true;
  }
  for (std::size_t i = num_forward(); i < file_.blocks.size(); ++i) {
    for (std::uint32_t id : block(i).outputs) ++gradients_[id].makers;
  }
  return {};
}

Error Importer::cycle_error(const std::vector<std::uint32_t>& cycle) const {
  constexpr std::size_t kShown = 8;
  std::string text = source_ + ": the graph is cyclic: ";
  for (std::size_t i = 0; i < std::min(cycle.size(), kShown); ++i) {
    text += "block " + std::to_string(cycle[i]) + " " + in_quotes(block(cycle[i]).type) + " -> ";
  }
  if (cycle.size() > kShown) text += "... -> ";
  return bad_input(text + "block " + std::to_string(cycle[0]));
}

// The blocks whose value nothing reads forward, the losses, come last.
Result<std::vector<std::uint32_t>> Importer::forward_order() const {
  Edges edges;
  std::vector<std::uint64_t> priorities;
  for (std::uint32_t i = 0; i < num_forward(); ++i) {
    const std::uint64_t last = is_loss(i) ? std::uint64_t{1} << 63 : 0;
    priorities.push_back(last | (ranks_[i] << 32) | i);
    for (const LowerSetRead& read : block(i).inputs) {
      if (makers_[read.variable] != kNone) edges.emplace_back(makers_[read.variable], i);
    }
  }
  TopologicalOrder sorted = topological_order(priorities, edges);
  if (!sorted.cycle.empty()) return cycle_error(sorted.cycle);
  return std::move(sorted.order);
}

// As far as the gradients allow, the reverse of the forward order. Variables are nodes of the
// sort too (after the blocks), because makers times readers of a gradient may be very many.
Result<std::vector<std::uint32_t>> Importer::backward_order(
    const std::vector<std::uint32_t>& forward) const {
  const auto first = static_cast<std::uint32_t>(num_forward());
  std::vector<std::uint64_t> priorities(num_forward() + file_.variables.size(), 0);
  for (std::size_t place = 0; place < forward.size(); ++place) {
    priorities[forward[place]] = forward.size() - place;
  }
  Edges edges;
  for (std::uint32_t i = 0; i < first; ++i) {
    const LowerSetBlock& backward = block(first + i);
    for (std::uint32_t id : backward.outputs) edges.emplace_back(i, first + id);
    for (const LowerSetRead& read : backward.inputs) {
      if (read.role == LowerSetRole::kGradient) edges.emplace_back(first + read.variable, i);
    }
  }
  TopologicalOrder sorted = topological_order(priorities, edges);
  const auto is_variable = [&](std::uint32_t node) { return node >= first; };
  if (!sorted.cycle.empty()) {
    std::erase_if(sorted.cycle, is_variable);
    for (std::uint32_t& node : sorted.cycle) node += first;
    return cycle_error(sorted.cycle);
  }
  std::erase_if(sorted.order, is_variable);
  return std::move(sorted.order);
}

std::string Importer::tensor_name(std::uint32_t variable) const {
  const std::string& name = file_.variables[variable].name;
  return name == "_" ? "v" + std::to_string(variable) : name;
}

void Importer::add_variables() {
  for (std::uint32_t i = 0; i < file_.variables.size(); ++i) {
    const LowerSetVariable& variable = file_.variables[i];
    const bool made = makers_[i] != kNone;
    const bool nameless = variable.name == "_";
    const TensorKind kind = made                                   ? TensorKind::kActivation
                            : nameless || is_number(variable.name) ? TensorKind::kInput
                                                                   : TensorKind::kParam;
    TensorSpec tensor{.name = tensor_name(i), .bytes = variable.bytes, .kind = kind};
    // Only a name that the writer would not guess is worth carrying.
    if (made != nameless)
      tensor.attributes = Json{{"lower_sets", {{"name", variable.name}}}}.dump();
    builder_.add_tensor(std::move(tensor));
  }
}

// What the graph itself does not say of a block, for the way back.
std::string Importer::carried(std::uint32_t index) const {
  std::string roles;
  Json inputs = Json::array();
  for (const LowerSetRead& read : block(index).inputs) {
    inputs.push_back(read.variable);
    roles += "_gio"[static_cast<std::size_t>(read.role)];
  }
  Json fields = Json::object();
  fields["block"] = index;
  fields["inputs"] = std::move(inputs);
  if (block(index).backward) fields["roles"] = roles;
  fields["outputs"] = block(index).outputs;
  fields["json"] = block(index).attributes;
  return Json{{"lower_sets", std::move(fields)}}.dump();
}

void Importer::add_forward(std::uint32_t index) {
  OpSpec op{.name = names_[index],
            .type = block(index).type,
            .phase = is_loss(index) ? Phase::kLoss : Phase::kForward,
            .outputs = {TensorId(block(index).outputs[0])},
            .random = block(index).type == "Dropout",
            .variants = {{.cost = lower_set_cost(block(index).type)}},
            .attributes = carried(index)};
  for (const LowerSetRead& read : block(index).inputs) op.inputs.push_back(TensorId(read.variable));
  builder_.add_op(std::move(op));
}

TensorId Importer::add_partial(std::uint32_t variable) {
  Gradient& gradient = gradients_[variable];
  const bool whole = gradient.makers == 1;
  const bool kept = whole && makers_[variable] == kNone;
  std::string name = tensor_name(variable) + "/grad";
  if (!whole) name += "/" + std::to_string(gradient.made);
  return builder_.add_tensor({.name = std::move(name),
                              .bytes = file_.variables[variable].bytes,
                              .kind = kept ? TensorKind::kOutput : TensorKind::kGradient});
}

// Adds the partial to the sum. In place by choice only: the default variant overwrites nothing,
// so that every planner can use it.
void Importer::accumulate(std::uint32_t variable, TensorId partial) {
  Gradient& gradient = gradients_[variable];
  if (++gradient.made == 1) {
    gradient.sum = partial;
    return;
  }
  const bool last = gradient.made == gradient.makers;
  const bool kept = last && makers_[variable] == kNone;
  const std::string base = tensor_name(variable);
  const std::string number = std::to_string(gradient.made - 1);
  const TensorId sum =
      builder_.add_tensor({.name = base + "/grad" + (last ? "" : "/sum" + number),
                           .bytes = file_.variables[variable].bytes,
                           .kind = kept ? TensorKind::kOutput : TensorKind::kGradient});
  builder_.add_op(
      {.name = base + "/accumulate/" + number,
       .type = "accumulate",
       .phase = Phase::kBackward,
       .inputs = {gradient.sum, partial},
       .outputs = {sum},
       .variants = {{.name = "copy"}, {.name = "in_place", .overwrites = gradient.sum}}});
  gradient.sum = sum;
}

void Importer::add_backward(std::uint32_t index) {
  const auto position = static_cast<std::uint32_t>(index + num_forward());
  OpSpec op{.name = names_[index] + "/backward",
            .type = block(position).type,
            .phase = Phase::kBackward,
            .attributes = carried(position)};
  for (const LowerSetRead& read : block(position).inputs) {
    if (read.role != LowerSetRole::kGradient) {
      op.inputs.push_back(TensorId(read.variable));
    } else if (gradients_[read.variable].sum.valid()) {
      // No block makes the gradient of the loss: it is the constant one, and no tensor.
      op.inputs.push_back(gradients_[read.variable].sum);
    }
  }
  for (std::uint32_t id : block(position).outputs) op.outputs.push_back(add_partial(id));
  const std::vector<TensorId> partials = op.outputs;
  builder_.add_op(std::move(op));
  for (std::size_t i = 0; i < partials.size(); ++i) {
    accumulate(block(position).outputs[i], partials[i]);
  }
}

Result<Graph> Importer::run() {
  describe_blocks();
  REGEN_TRY(find_makers());
  REGEN_ASSIGN(const auto forward, forward_order());
  REGEN_ASSIGN(const auto backward, backward_order(forward));
  builder_.set_attributes(Json{{"lower_sets", {{"variables", file_.variables.size()}}}}.dump());
  add_variables();
  for (std::uint32_t index : forward) add_forward(index);
  for (std::uint32_t index : backward) add_backward(index);
  auto graph = std::move(builder_).build();
  if (!graph.ok()) return bad_input(source_ + ": " + graph.error().message);
  return graph;
}

}  // namespace

Result<Graph> graph_from_lower_sets(const LowerSetFile& file, const std::string& source) {
  return Importer(file, source).run();
}

}  // namespace regen::published
