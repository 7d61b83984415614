#include "regen/graph/builder.h"

#include <algorithm>
#include <cmath>

#include "regen/base/text.h"

namespace regen {
namespace {

constexpr std::size_t kMaxItems = 50'000'000;  // ops or tensors; ids have 32 bits

void remove_repetitions(std::vector<TensorId>& list) {
  if (list.size() <= 16) {
    auto end = list.begin();
    for (TensorId t : list) {
      if (std::find(list.begin(), end, t) == end) *end++ = t;
    }
    list.erase(end, list.end());
    return;
  }
  std::vector<std::pair<TensorId, std::size_t>> order;
  for (std::size_t i = 0; i < list.size(); ++i) order.emplace_back(list[i], i);
  std::sort(order.begin(), order.end());
  std::vector<bool> keep(list.size(), false);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || order[i].first != order[i - 1].first) keep[order[i].second] = true;
  }
  std::vector<TensorId> unique;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (keep[i]) unique.push_back(list[i]);
  }
  list = std::move(unique);
}

bool contains(const std::vector<TensorId>& list, TensorId t) {
  return std::find(list.begin(), list.end(), t) != list.end();
}

bool valid_cost(double cost) {
  return std::isfinite(cost) && cost >= 0;
}

}  // namespace

GraphBuilder::GraphBuilder(std::string name, CostUnit unit) {
  graph_.name_ = std::move(name);
  graph_.cost_unit_ = unit;
}

void GraphBuilder::fail(std::string message) {
  if (!error_) error_ = bad_input("graph " + in_quotes(graph_.name_) + ": " + std::move(message));
}

std::string GraphBuilder::describe(TensorId t) const {
  if (t.index() >= num_tensors()) return "tensor " + std::to_string(t.index());
  return "tensor " + std::to_string(t.index()) + " " + in_quotes(graph_.tensor_names_[t]);
}

TensorId GraphBuilder::add_tensor(TensorSpec spec) {
  const TensorId id(num_tensors());
  if (error_) return id;
  if (num_tensors() >= kMaxItems) fail("more than 50,000,000 tensors");
  if (spec.bytes < 0 || spec.bytes > kMaxBytes) {
    fail("tensor " + std::to_string(id.index()) + " " + in_quotes(spec.name) + ": " +
         std::to_string(spec.bytes) + " bytes is out of range, expected 0 to 8 PiB");
    return id;
  }
  total_bytes_ += spec.bytes;
  if (total_bytes_ > kMaxBytes) {
    fail(describe(id) + ": the sizes of all tensors add up to more than 8 PiB");
    return id;
  }
  if (is_fixed(spec.kind)) graph_.fixed_bytes_ += spec.bytes;
  graph_.tensor_names_.push_back(std::move(spec.name));
  graph_.tensor_attributes_.push_back(std::move(spec.attributes));
  graph_.tensor_bytes_.push_back(spec.bytes);
  graph_.tensor_kinds_.push_back(spec.kind);
  graph_.tensor_producers_.push_back(OpId::none());
  return id;
}

bool GraphBuilder::check_readable(const OpSpec& op, TensorId t, const char* role) {
  if (t.index() >= num_tensors()) {
    fail("op " + in_quotes(op.name) + " " + role + " " + describe(t) + ", expected an id below " +
         std::to_string(num_tensors()));
    return false;
  }
  if (!is_fixed(graph_.tensor_kinds_[t]) && !graph_.tensor_producers_[t].valid()) {
    fail("op " + in_quotes(op.name) + " " + role + " " + describe(t) +
         " before any op makes it: the graph is cyclic or not in topological order");
    return false;
  }
  return true;
}

bool GraphBuilder::check_outputs(const OpSpec& op, const std::vector<TensorId>& outputs, OpId id) {
  for (TensorId t : outputs) {
    if (t.index() >= num_tensors()) {
      fail("op " + in_quotes(op.name) + " makes " + describe(t) + ", expected an id below " +
           std::to_string(num_tensors()));
      return false;
    }
    if (is_fixed(graph_.tensor_kinds_[t])) {
      fail("op " + in_quotes(op.name) + " makes " + describe(t) + " of the fixed kind " +
           std::string(to_string(graph_.tensor_kinds_[t])) + ", expected a planned kind");
      return false;
    }
    const OpId maker = graph_.tensor_producers_[t];
    if (maker.valid()) {
      fail(describe(t) + " is made twice, by op " +
           in_quotes(maker == id ? op.name : graph_.op_names_[maker]) + " and by op " +
           in_quotes(op.name));
      return false;
    }
    graph_.tensor_producers_[t] = id;
  }
  return true;
}

bool GraphBuilder::check_variant(const OpSpec& op, const VariantSpec& variant) {
  const std::string where =
      "op " + in_quotes(op.name) + " variant " + in_quotes(variant.name) + ": ";
  if (!valid_cost(variant.cost) || !valid_cost(variant.rerun_cost.value_or(0)) ||
      !valid_cost(variant.flops) || !valid_cost(variant.traffic)) {
    fail(where + "cost, rerun cost, flops and traffic must be finite and not negative");
    return false;
  }
  if (variant.workspace < 0 || variant.workspace > kMaxBytes) {
    fail(where + "workspace of " + std::to_string(variant.workspace) +
         " bytes is out of range, expected 0 to 8 PiB");
    return false;
  }
  if (variant.reads) {
    for (TensorId t : *variant.reads) {
      if (!check_readable(op, t, "reads")) return false;
    }
  }
  for (TensorId t : variant.extra_outputs) {
    if (t.index() < num_tensors() && graph_.tensor_kinds_[t] == TensorKind::kOutput) {
      fail(
          where + "makes the extra " + describe(t) +
          " of kind output, expected another kind: the step must end with it whatever the variant");
      return false;
    }
  }
  if (!variant.overwrites.valid()) return true;
  const TensorId old = variant.overwrites;
  if (!contains(variant.reads ? *variant.reads : op.inputs, old)) {
    fail(where + "overwrites " + describe(old) + ", which it does not read");
    return false;
  }
  if (is_fixed(graph_.tensor_kinds_[old])) {
    fail(where + "overwrites the fixed " + describe(old));
    return false;
  }
  if (op.outputs.empty()) {
    fail(where + "overwrites " + describe(old) + ", but the op has no output to put there");
    return false;
  }
  if (graph_.tensor_bytes_[op.outputs[0]] > graph_.tensor_bytes_[old]) {
    fail(where + "overwrites " + describe(old) + ", which is smaller than the output");
    return false;
  }
  return true;
}

bool GraphBuilder::check_mutates(const OpSpec& op) {
  for (TensorId t : op.mutates) {
    if (t.index() >= num_tensors() || !is_fixed(graph_.tensor_kinds_[t])) {
      fail("op " + in_quotes(op.name) + " mutates " + describe(t) + ", expected a fixed tensor");
      return false;
    }
  }
  return true;
}

bool GraphBuilder::check_choice(const OpSpec& op) {
  if (!op.choice_group.valid()) return true;
  for (const VariantSpec& variant : op.variants) {
    if (!variant.reads && variant.extra_outputs.empty() && !variant.overwrites.valid()) continue;
    fail("op " + in_quotes(op.name) + " variant " + in_quotes(variant.name) +
         ": reads, extra outputs or an overwritten input found in choice group " +
         std::to_string(op.choice_group.index()) +
         ", expected variants that differ in cost and workspace alone");
    return false;
  }
  return true;
}

// Which group has which number of variants is known only when all ops are.
void GraphBuilder::check_choice_groups() {
  std::vector<OpId> first(num_ops());
  for (OpId op : graph_.ops()) {
    const ChoiceGroupId group = graph_.choice_group(op);
    if (!group.valid()) continue;
    const std::string where =
        "op " + in_quotes(graph_.name(op)) + ": choice group " + std::to_string(group.index());
    if (group.index() >= num_ops()) {
      return fail(where + " found, expected a number below that of the ops, " +
                  std::to_string(num_ops()));
    }
    OpId& other = first[group.index()];
    if (!other.valid()) other = op;
    if (graph_.variants(op).size() == graph_.variants(other).size()) continue;
    return fail(where + " with " + format_count(graph_.variants(op).size(), "variant") +
                " found, expected " + std::to_string(graph_.variants(other).size()) + " as op " +
                in_quotes(graph_.name(other)) + " of the same group has");
  }
}

OpId GraphBuilder::add_op(OpSpec spec) {
  const OpId id(num_ops());
  if (error_) return id;
  if (num_ops() >= kMaxItems) fail("more than 50,000,000 ops");
  if (spec.variants.empty()) spec.variants.emplace_back();
  for (TensorId t : spec.inputs) {
    if (!check_readable(spec, t, "reads")) return id;
  }
  if (!check_mutates(spec) || !check_choice(spec)) return id;
  for (const VariantSpec& variant : spec.variants) {
    for (TensorId t : spec.outputs) {
      if (t.index() >= num_tensors()) {
        fail("op " + in_quotes(spec.name) + " makes " + describe(t) + ", expected an id below " +
             std::to_string(num_tensors()));
        return id;
      }
    }
    if (!check_variant(spec, variant)) return id;
  }
  if (!check_outputs(spec, spec.outputs, id)) return id;
  std::vector<TensorId> extras;
  for (const VariantSpec& variant : spec.variants) {
    extras.insert(extras.end(), variant.extra_outputs.begin(), variant.extra_outputs.end());
  }
  remove_repetitions(extras);
  if (!check_outputs(spec, extras, id)) return id;

  remove_repetitions(spec.inputs);
  std::vector<TensorId> all_reads = spec.variants[0].reads ? std::vector<TensorId>() : spec.inputs;
  for (const VariantSpec& variant : spec.variants) {
    const auto& reads = variant.reads ? *variant.reads : spec.inputs;
    all_reads.insert(all_reads.end(), reads.begin(), reads.end());
  }
  remove_repetitions(all_reads);
  for (VariantSpec& variant : spec.variants) append_variant(spec, std::move(variant), id);
  graph_.op_inputs_.append_row(all_reads);
  graph_.op_outputs_.append_row(spec.outputs);
  graph_.op_mutates_.append_row(spec.mutates);
  graph_.first_variant_.push_back(static_cast<std::uint32_t>(graph_.num_variants()));
  graph_.op_phases_.push_back(spec.phase);
  graph_.op_recomputable_.push_back(spec.recomputable && spec.mutates.empty());
  graph_.op_random_.push_back(spec.random);
  graph_.op_choice_groups_.push_back(spec.choice_group);
  graph_.op_names_.push_back(std::move(spec.name));
  graph_.op_types_.push_back(std::move(spec.type));
  graph_.op_attributes_.push_back(std::move(spec.attributes));
  return id;
}

void GraphBuilder::append_variant(const OpSpec& op, VariantSpec variant, OpId id) {
  if (graph_.first_variant_.back() == graph_.num_variants()) graph_.base_cost_ += variant.cost;
  graph_.variant_names_.push_back(std::move(variant.name));
  graph_.variant_ops_.push_back(id);
  graph_.variant_costs_.push_back(variant.cost);
  graph_.variant_rerun_costs_.push_back(variant.rerun_cost.value_or(variant.cost));
  graph_.variant_workspaces_.push_back(variant.workspace);
  graph_.variant_flops_.push_back(variant.flops);
  graph_.variant_traffic_.push_back(variant.traffic);
  graph_.variant_overwrites_.push_back(variant.overwrites);
  if (variant.reads) remove_repetitions(*variant.reads);
  graph_.variant_reads_.append_row(variant.reads ? *variant.reads : op.inputs);
  std::vector<TensorId> makes = op.outputs;
  makes.insert(makes.end(), variant.extra_outputs.begin(), variant.extra_outputs.end());
  remove_repetitions(makes);
  graph_.variant_makes_.append_row(makes);
}

TensorId GraphBuilder::add_simple_op(std::string name, std::string type, Phase phase,
                                     std::vector<TensorId> inputs, Bytes output_bytes,
                                     TensorKind kind, double cost) {
  const TensorId output = add_tensor({.name = name, .bytes = output_bytes, .kind = kind});
  add_op({.name = std::move(name),
          .type = std::move(type),
          .phase = phase,
          .inputs = std::move(inputs),
          .outputs = {output},
          .variants = {{.cost = cost}}});
  return output;
}

Result<Graph> GraphBuilder::build() && {
  for (TensorId t : graph_.tensors()) {
    if (error_) break;
    if (!is_fixed(graph_.tensor_kinds_[t]) && !graph_.tensor_producers_[t].valid()) {
      fail(describe(t) + " of kind " + std::string(to_string(graph_.tensor_kinds_[t])) +
           " is made by no op");
    }
  }
  if (!error_ && num_ops() == 0) fail("has no ops");
  if (!error_) check_choice_groups();
  if (error_) return *error_;
  std::vector<std::pair<TensorId, OpId>> uses;
  for (OpId op : graph_.ops()) {
    for (TensorId t : graph_.inputs(op)) uses.emplace_back(t, op);
  }
  graph_.tensor_consumers_ = Csr<TensorId, OpId>::from_pairs(num_tensors(), uses);
  return std::move(graph_);
}

}  // namespace regen
