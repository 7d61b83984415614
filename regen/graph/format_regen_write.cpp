#include "regen/base/json.h"
#include "regen/graph/format_regen.h"

namespace regen {
namespace {

// Attributes lie at most three levels deep in the file, which may have 64 in all.
constexpr std::string_view kDeepestPrefix = "[[[";
constexpr std::string_view kDeepestSuffix = "]]]";

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph) {}

  Result<std::string> write();

 private:
  void key(std::string_view name) {
    if (!first_) out_ += ',';
    first_ = false;
    out_ += '"';
    out_ += name;
    out_ += "\":";
  }
  void open(char bracket) {
    out_ += bracket;
    first_ = true;
  }
  void close(char bracket) {
    out_ += bracket;
    first_ = false;
  }
  void separate(bool first) { out_ += first ? "\n" : ",\n"; }

  Status text(std::string_view name, std::string_view value) {
    if (value.empty()) return {};
    key(name);
    return append_json_string(out_, value);
  }
  void number(std::string_view name, double value) {
    key(name);
    out_ += format_exact(value);
  }
  void whole(std::string_view name, std::int64_t value) {
    key(name);
    out_ += std::to_string(value);
  }
  void flag(std::string_view name, bool value) {
    key(name);
    out_ += value ? "true" : "false";
  }
  void ids(std::string_view name, const std::vector<TensorId>& list) {
    key(name);
    out_ += '[';
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out_ += ',';
      out_ += std::to_string(list[i].index());
    }
    out_ += ']';
  }
  Status attributes(const std::string& value);
  Status tensor(const TensorSpec& spec);
  Status op(const OpSpec& spec);
  Status variant(const VariantSpec& spec);

  const Graph& graph_;
  std::string out_;
  bool first_ = true;  // whether the next key is the first of its object
};

// Text that the reader would give back unchanged becomes an object; other text (with spaces,
// say, or very deep) a string.
Status Writer::attributes(const std::string& value) {
  if (value.empty()) return {};
  auto parsed = parse_json(value, "attributes");
  if (!parsed.ok()) return parsed.error();
  if (!parsed->is_object()) {
    return bad_input("attributes: " + excerpt(*parsed) + " found, expected an object");
  }
  key("attributes");
  const std::string nested = std::string(kDeepestPrefix) + value + std::string(kDeepestSuffix);
  if (parsed->dump() == value && parse_json(nested, "").ok()) {
    out_ += value;
    return {};
  }
  return append_json_string(out_, value);
}

Status Writer::tensor(const TensorSpec& spec) {
  open('{');
  REGEN_TRY(text("name", spec.name));
  whole("bytes", spec.bytes);
  if (spec.kind != TensorKind::kActivation) REGEN_TRY(text("kind", to_string(spec.kind)));
  REGEN_TRY(attributes(spec.attributes));
  close('}');
  return {};
}

Status Writer::op(const OpSpec& spec) {
  open('{');
  REGEN_TRY(text("name", spec.name));
  REGEN_TRY(text("type", spec.type));
  if (spec.phase != Phase::kForward) REGEN_TRY(text("phase", to_string(spec.phase)));
  if (!spec.inputs.empty()) ids("inputs", spec.inputs);
  if (!spec.outputs.empty()) ids("outputs", spec.outputs);
  if (!spec.mutates.empty()) ids("mutates", spec.mutates);
  if (!spec.recomputable && spec.mutates.empty()) flag("recomputable", false);
  if (spec.random) flag("random", true);
  if (spec.variants.size() != 1 || spec.variants[0] != VariantSpec{}) {
    key("variants");
    open('[');
    for (std::size_t i = 0; i < spec.variants.size(); ++i) {
      if (i > 0) out_ += ',';
      REGEN_TRY(variant(spec.variants[i]));
    }
    close(']');
  }
  if (spec.choice_group.valid()) {
    whole("choice_group", static_cast<std::int64_t>(spec.choice_group.index()));
  }
  REGEN_TRY(attributes(spec.attributes));
  close('}');
  return {};
}

Status Writer::variant(const VariantSpec& spec) {
  open('{');
  REGEN_TRY(text("name", spec.name));
  if (spec.cost != 0) number("cost", spec.cost);
  if (spec.rerun_cost) number("rerun_cost", *spec.rerun_cost);
  if (spec.workspace != 0) whole("workspace", spec.workspace);
  if (spec.reads) ids("reads", *spec.reads);
  if (!spec.extra_outputs.empty()) ids("extra_outputs", spec.extra_outputs);
  if (spec.overwrites.valid()) {
    whole("overwrites", static_cast<std::int64_t>(spec.overwrites.index()));
  }
  if (spec.flops != 0) number("flops", spec.flops);
  if (spec.traffic != 0) number("traffic", spec.traffic);
  close('}');
  return {};
}

// The problem with the place it was found at.
Error at(const char* list, std::size_t index, const Error& problem) {
  return {problem.code, std::string(list) + "[" + std::to_string(index) + "]: " + problem.message};
}

Result<std::string> Writer::write() {
  out_.reserve(graph_.num_tensors() * 64 + graph_.num_ops() * 128);
  open('{');
  REGEN_TRY(text("format", "regen-graph"));
  whole("version", kRegenGraphVersion);
  REGEN_TRY(text("name", graph_.name()));
  REGEN_TRY(text("cost_unit", to_string(graph_.cost_unit())));
  REGEN_TRY(attributes(graph_.attributes()));
  out_ += ",\n\"tensors\":[";
  for (TensorId t : graph_.tensors()) {
    separate(t.index() == 0);
    if (auto status = tensor(graph_.tensor_spec(t)); !status.ok()) {
      return at("tensors", t.index(), status.error());
    }
  }
  out_ += "\n],\n\"ops\":[";
  for (OpId id : graph_.ops()) {
    separate(id.index() == 0);
    if (auto status = op(graph_.op_spec(id)); !status.ok()) {
      return at("ops", id.index(), status.error());
    }
  }
  out_ += "\n]}\n";
  return std::move(out_);
}

}  // namespace

Result<std::string> write_regen_graph(const Graph& graph) {
  return Writer(graph).write();
}

}  // namespace regen
