#include <algorithm>
#include <optional>

#include "regen/base/json.h"
#include "regen/base/text.h"
#include "regen/graph/builder.h"
#include "regen/graph/format_order.h"
#include "regen/graph/format_regen.h"

namespace regen {
namespace {

constexpr std::string_view kTopFields =
    "format, version, name, cost_unit, attributes, tensors and ops";
constexpr std::string_view kTensorFields = "id, name, bytes, kind and attributes";
constexpr std::string_view kOpFields =
    "id, name, type, phase, inputs, outputs, mutates, recomputable, random, variants, "
    "choice_group and attributes";
constexpr std::string_view kVariantFields =
    "name, cost, rerun_cost, workspace, reads, extra_outputs, overwrites, flops and traffic";

// A variant without "reads" reads every input, so a small text could ask for a huge graph.
constexpr std::size_t kMaxLinks = 10'000'000;

// Writes the value of `result` to `target`, or passes its error on.
template <typename T, typename R>
Status store(T& target, R result) {
  if (!result.ok()) return result.error();
  target = std::move(result).value();
  return {};
}

class Reader {
 public:
  Reader(const Json& document, const std::string& source) : root_(document, source) {}

  Result<Graph> read();

 private:
  Status read_header();
  Status read_tensors(const JsonCursor& at);
  Status read_ops(const JsonCursor& at);
  Result<TensorSpec> read_tensor(const JsonCursor& at, std::size_t index) const;
  Result<OpSpec> read_op(const JsonCursor& at, std::size_t index) const;
  Status read_op_field(const JsonCursor& at, const std::string& key, std::size_t index,
                       OpSpec& op) const;
  Result<std::vector<VariantSpec>> read_variants(const JsonCursor& at) const;
  Result<VariantSpec> read_variant(const JsonCursor& at) const;
  Result<TensorId> read_id(const JsonCursor& at) const;
  Result<std::vector<TensorId>> read_ids(const JsonCursor& at) const;
  Status check_links(const JsonCursor& at, const OpSpec& op);
  Status check_order() const;
  Error order_error(std::size_t op, TensorId t, const std::vector<std::uint32_t>& makers) const;
  Error cycle_error(const std::vector<std::uint32_t>& cycle) const;

  JsonCursor root_;
  std::string name_;
  std::string attributes_;
  CostUnit unit_ = CostUnit::kFlop;
  std::vector<TensorSpec> tensors_;
  std::vector<OpSpec> ops_;
  std::size_t links_ = 0;
};

// Ids are optional; where given they must count up, so that a reordered or doubled entry shows.
Status check_id(const JsonCursor& at, std::size_t index) {
  REGEN_ASSIGN(const std::int64_t id, at.whole(0, INT64_MAX));
  if (static_cast<std::size_t>(id) == index) return {};
  const char* problem = static_cast<std::size_t>(id) < index ? "duplicate or misplaced id " : "id ";
  return at.error(problem + std::to_string(id) + ", expected " + std::to_string(index) +
                  ": ids count up from 0 in file order");
}

// An object is kept as compact text. A string is kept as it is: it holds the text of an object
// that a writer must give back unchanged.
Result<std::string> read_attributes(const JsonCursor& at) {
  if (at.value().is_object()) return at.value().dump();
  if (!at.value().is_string()) {
    return at.error(excerpt(at.value()) + " found, expected an object, or its text as a string");
  }
  const auto& text = at.value().get_ref<const std::string&>();
  const auto inner = parse_json(text, "the string");
  if (!inner.ok()) return at.error(inner.error().message);
  if (!inner->is_object())
    return at.error("the string holds " + excerpt(*inner) + ", expected an object");
  return text;
}

// Whether it is below the number of ops is known when all of them are read.
Result<ChoiceGroupId> read_group(const JsonCursor& at) {
  REGEN_ASSIGN(const std::int64_t group, at.whole(0, ChoiceGroupId::kNoneValue - 1));
  return ChoiceGroupId(static_cast<std::size_t>(group));
}

template <typename T>
Result<T> read_name(const JsonCursor& at, Result<T> (*parse)(std::string_view)) {
  if (!at.value().is_string()) return at.error(excerpt(at.value()) + " found, expected a string");
  auto result = parse(at.value().get_ref<const std::string&>());
  if (!result.ok()) return at.error(result.error().message);
  return result;
}

Status Reader::read_header() {
  REGEN_TRY(root_.expect_object());
  const Json& document = root_.value();
  for (const char* key : {"format", "version", "tensors", "ops"}) {
    if (!document.contains(key)) return root_.missing_field(key);
  }
  const JsonCursor format = root_.member("format", document["format"]);
  if (format.value() != "regen-graph") {
    return format.error(excerpt(format.value()) + " found, expected \"regen-graph\"");
  }
  const JsonCursor version = root_.member("version", document["version"]);
  if (version.value() != kRegenGraphVersion) {
    return version.error(excerpt(version.value()) + " found, expected " +
                         std::to_string(kRegenGraphVersion) + ", the only version known here");
  }
  return {};
}

Result<Graph> Reader::read() {
  REGEN_TRY(read_header());
  const Json& document = root_.value();
  for (auto it = document.begin(); it != document.end(); ++it) {
    const std::string& key = it.key();
    const JsonCursor at = root_.member(key, *it);
    if (key == "name") {
      REGEN_TRY(store(name_, at.string()));
    } else if (key == "cost_unit") {
      REGEN_TRY(store(unit_, read_name<CostUnit>(at, parse_cost_unit)));
    } else if (key == "attributes") {
      REGEN_TRY(store(attributes_, read_attributes(at)));
    } else if (key != "format" && key != "version" && key != "tensors" && key != "ops") {
      return root_.unknown_field(key, kTopFields);
    }
  }
  REGEN_TRY(read_tensors(root_.member("tensors", document["tensors"])));
  REGEN_TRY(read_ops(root_.member("ops", document["ops"])));
  REGEN_TRY(check_order());
  GraphBuilder builder(name_, unit_);
  builder.set_attributes(std::move(attributes_));
  for (TensorSpec& tensor : tensors_) builder.add_tensor(std::move(tensor));
  for (OpSpec& op : ops_) builder.add_op(std::move(op));
  auto graph = std::move(builder).build();
  if (!graph.ok()) return root_.error(graph.error().message);
  return graph;
}

Status Reader::read_tensors(const JsonCursor& at) {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  tensors_.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(TensorSpec tensor, read_tensor(at.item(i), i));
    tensors_.push_back(std::move(tensor));
  }
  return {};
}

Result<TensorSpec> Reader::read_tensor(const JsonCursor& at, std::size_t index) const {
  REGEN_TRY(at.expect_object());
  TensorSpec tensor;
  bool sized = false;
  for (auto it = at.value().begin(); it != at.value().end(); ++it) {
    const std::string& key = it.key();
    const JsonCursor field = at.member(key, *it);
    if (key == "name") {
      REGEN_TRY(store(tensor.name, field.string()));
    } else if (key == "bytes") {
      REGEN_TRY(store(tensor.bytes, field.whole(0, kMaxBytes)));
      sized = true;
    } else if (key == "kind") {
      REGEN_TRY(store(tensor.kind, read_name<TensorKind>(field, parse_tensor_kind)));
    } else if (key == "attributes") {
      REGEN_TRY(store(tensor.attributes, read_attributes(field)));
    } else if (key == "id") {
      REGEN_TRY(check_id(field, index));
    } else {
      return at.unknown_field(key, kTensorFields);
    }
  }
  if (!sized) return at.missing_field("bytes");
  return tensor;
}

Status Reader::read_ops(const JsonCursor& at) {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  ops_.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    const JsonCursor item = at.item(i);
    REGEN_ASSIGN(OpSpec op, read_op(item, i));
    REGEN_TRY(check_links(item, op));
    ops_.push_back(std::move(op));
  }
  return {};
}

Result<OpSpec> Reader::read_op(const JsonCursor& at, std::size_t index) const {
  REGEN_TRY(at.expect_object());
  OpSpec op;
  for (auto it = at.value().begin(); it != at.value().end(); ++it) {
    REGEN_TRY(read_op_field(at.member(it.key(), *it), it.key(), index, op));
  }
  return op;
}

Status Reader::read_op_field(const JsonCursor& at, const std::string& key, std::size_t index,
                             OpSpec& op) const {
  if (key == "name") return store(op.name, at.string());
  if (key == "type") return store(op.type, at.string());
  if (key == "inputs") return store(op.inputs, read_ids(at));
  if (key == "outputs") return store(op.outputs, read_ids(at));
  if (key == "variants") return store(op.variants, read_variants(at));
  if (key == "phase") return store(op.phase, read_name<Phase>(at, parse_phase));
  if (key == "mutates") return store(op.mutates, read_ids(at));
  if (key == "recomputable") return store(op.recomputable, at.boolean());
  if (key == "random") return store(op.random, at.boolean());
  if (key == "choice_group") return store(op.choice_group, read_group(at));
  if (key == "attributes") return store(op.attributes, read_attributes(at));
  if (key == "id") return check_id(at, index);
  return at.error("unknown field, expected one of " + std::string(kOpFields));
}

Result<std::vector<VariantSpec>> Reader::read_variants(const JsonCursor& at) const {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  if (size == 0) return at.error("an empty array found, expected at least one variant");
  std::vector<VariantSpec> variants;
  variants.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(VariantSpec variant, read_variant(at.item(i)));
    variants.push_back(std::move(variant));
  }
  return variants;
}

Result<VariantSpec> Reader::read_variant(const JsonCursor& at) const {
  REGEN_TRY(at.expect_object());
  VariantSpec variant;
  for (auto it = at.value().begin(); it != at.value().end(); ++it) {
    const std::string& key = it.key();
    const JsonCursor field = at.member(key, *it);
    if (key == "cost") {
      REGEN_TRY(store(variant.cost, field.not_negative()));
    } else if (key == "name") {
      REGEN_TRY(store(variant.name, field.string()));
    } else if (key == "rerun_cost") {
      REGEN_TRY(store(variant.rerun_cost, field.not_negative()));
    } else if (key == "workspace") {
      REGEN_TRY(store(variant.workspace, field.whole(0, kMaxBytes)));
    } else if (key == "reads") {
      REGEN_TRY(store(variant.reads, read_ids(field)));
    } else if (key == "extra_outputs") {
      REGEN_TRY(store(variant.extra_outputs, read_ids(field)));
    } else if (key == "overwrites") {
      REGEN_TRY(store(variant.overwrites, read_id(field)));
    } else if (key == "flops") {
      REGEN_TRY(store(variant.flops, field.not_negative()));
    } else if (key == "traffic") {
      REGEN_TRY(store(variant.traffic, field.not_negative()));
    } else {
      return at.unknown_field(key, kVariantFields);
    }
  }
  return variant;
}

Result<TensorId> Reader::read_id(const JsonCursor& at) const {
  if (at.value().is_number_unsigned()) {
    const auto id = at.value().get<std::uint64_t>();
    if (id < tensors_.size()) return TensorId(id);
  }
  return at.error(excerpt(at.value()) + " found, expected the id of a tensor, 0 to " +
                  std::to_string(static_cast<std::int64_t>(tensors_.size()) - 1));
}

Result<std::vector<TensorId>> Reader::read_ids(const JsonCursor& at) const {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  std::vector<TensorId> ids;
  ids.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(const TensorId id, read_id(at.item(i)));
    ids.push_back(id);
  }
  return ids;
}

Status Reader::check_links(const JsonCursor& at, const OpSpec& op) {
  const std::size_t lists = std::max<std::size_t>(op.variants.size(), 1);
  links_ += lists * (op.inputs.size() + op.outputs.size());
  // The builder compares extra outputs with each other.
  std::size_t extras = 0;
  for (const VariantSpec& variant : op.variants) extras += variant.extra_outputs.size();
  links_ += extras * extras;
  if (links_ <= kMaxLinks) return {};
  return at.error("op " + in_quotes(op.name) + " with " + std::to_string(op.variants.size()) +
                  " variants brings the reads and outputs over all variants to more than " +
                  std::to_string(kMaxLinks));
}

// The builder would refuse such a graph too; here the whole file is known, so the message can
// distinguish a cycle from a wrong order.
Status Reader::check_order() const {
  constexpr std::uint32_t kNone = UINT32_MAX;
  std::vector<std::uint32_t> makers(tensors_.size(), kNone);
  for (std::uint32_t i = 0; i < ops_.size(); ++i) {
    for (TensorId t : ops_[i].outputs) makers[t.index()] = i;
    for (const VariantSpec& variant : ops_[i].variants) {
      for (TensorId t : variant.extra_outputs) makers[t.index()] = i;
    }
  }
  for (std::uint32_t i = 0; i < ops_.size(); ++i) {
    const auto late = [&](TensorId t) {
      return makers[t.index()] != kNone && makers[t.index()] >= i &&
             !is_fixed(tensors_[t.index()].kind);
    };
    const auto check = [&](const std::vector<TensorId>& reads) -> Status {
      const auto found = std::find_if(reads.begin(), reads.end(), late);
      if (found == reads.end()) return {};
      return order_error(i, *found, makers);
    };
    REGEN_TRY(check(ops_[i].inputs));
    for (const VariantSpec& variant : ops_[i].variants) {
      if (variant.reads) REGEN_TRY(check(*variant.reads));
    }
  }
  return {};
}

Error Reader::order_error(std::size_t op, TensorId t,
                          const std::vector<std::uint32_t>& makers) const {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  for (std::uint32_t i = 0; i < ops_.size(); ++i) {
    const auto add = [&](const std::vector<TensorId>& reads) {
      for (TensorId read : reads) {
        if (makers[read.index()] != UINT32_MAX) edges.emplace_back(makers[read.index()], i);
      }
    };
    add(ops_[i].inputs);
    for (const VariantSpec& variant : ops_[i].variants) {
      if (variant.reads) add(*variant.reads);
    }
  }
  const std::vector<std::uint64_t> priorities(ops_.size(), 0);
  const TopologicalOrder sorted = topological_order(priorities, edges);
  if (!sorted.cycle.empty()) return cycle_error(sorted.cycle);
  const std::size_t maker = makers[t.index()];
  return root_.error("ops[" + std::to_string(op) + "] " + in_quotes(ops_[op].name) +
                     " reads tensor " + std::to_string(t.index()) + " " +
                     in_quotes(tensors_[t.index()].name) + ", which the later ops[" +
                     std::to_string(maker) + "] " + in_quotes(ops_[maker].name) +
                     " makes, expected the ops in topological order");
}

Error Reader::cycle_error(const std::vector<std::uint32_t>& cycle) const {
  constexpr std::size_t kShown = 8;
  std::string text = "the graph is cyclic: ";
  for (std::size_t i = 0; i < std::min(cycle.size(), kShown); ++i) {
    text += "ops[" + std::to_string(cycle[i]) + "] " + in_quotes(ops_[cycle[i]].name) + " -> ";
  }
  if (cycle.size() > kShown) {
    text += "... (" + std::to_string(cycle.size() - kShown) + " more) -> ";
  }
  return root_.error(text + "ops[" + std::to_string(cycle[0]) + "]");
}

}  // namespace

Result<Graph> read_regen_graph(std::string_view text, const std::string& source) {
  REGEN_ASSIGN(const Json document, parse_json(text, source));
  return Reader(document, source).read();
}

}  // namespace regen
