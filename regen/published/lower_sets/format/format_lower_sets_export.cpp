#include <algorithm>
#include <optional>

#include "regen/base/json.h"
#include "regen/base/text.h"
#include "regen/published/lower_sets/format/format_lower_sets.h"

namespace regen::published {
namespace {

// The "lower_sets" object inside an attribute text, or null.
Json carried(const std::string& attributes) {
  if (attributes.empty()) return nullptr;
  auto object = parse_json(attributes, "");
  if (!object.ok() || !object->is_object() || !object->contains("lower_sets")) return nullptr;
  return std::move((*object)["lower_sets"]);
}

std::optional<std::uint32_t> small_number(const Json& value, std::size_t limit) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= limit) return std::nullopt;
  return static_cast<std::uint32_t>(value.get<std::uint64_t>());
}

std::optional<std::vector<std::uint32_t>> small_numbers(const Json& list, std::size_t limit) {
  if (!list.is_array()) return std::nullopt;
  std::vector<std::uint32_t> numbers;
  for (const Json& item : list) {
    const auto number = small_number(item, limit);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<LowerSetBlock> carried_block(const Json& fields, const std::string& type,
                                           std::size_t num_variables) {
  if (!fields.is_object() || !fields.contains("inputs") || !fields.contains("outputs") ||
      !fields.contains("json") || !fields["json"].is_string()) {
    return std::nullopt;
  }
  const auto inputs = small_numbers(fields["inputs"], num_variables);
  const auto outputs = small_numbers(fields["outputs"], num_variables);
  if (!inputs || !outputs) return std::nullopt;
  LowerSetBlock block{.backward = fields.contains("roles"),
                      .outputs = *outputs,
                      .type = type,
                      .attributes = fields["json"].get<std::string>()};
  std::string roles(inputs->size(), '_');
  if (block.backward) {
    if (!fields["roles"].is_string()) return std::nullopt;
    roles = fields["roles"].get<std::string>();
  }
  if (roles.size() != inputs->size()) return std::nullopt;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const auto role = std::string_view("_gio").find(roles[i]);
    if (role == std::string_view::npos) return std::nullopt;
    block.inputs.push_back({(*inputs)[i], static_cast<LowerSetRole>(role)});
  }
  return block;
}

std::string carried_name(const Graph& graph, TensorId t) {
  const Json fields = carried(graph.attributes(t));
  if (fields.is_object() && fields.contains("name") && fields["name"].is_string()) {
    return fields["name"].get<std::string>();
  }
  return graph.fixed(t) ? graph.name(t) : "_";
}

// The file that the graph says it came from, if its attributes are whole.
std::optional<LowerSetFile> carried_file(const Graph& graph) {
  const Json header = carried(graph.attributes());
  if (!header.is_object() || !header.contains("variables")) return std::nullopt;
  const auto num_variables = small_number(header["variables"], graph.num_tensors() + 1);
  if (!num_variables) return std::nullopt;
  LowerSetFile file;
  for (std::size_t i = 0; i < *num_variables; ++i) {
    file.variables.push_back({graph.bytes(TensorId(i)), carried_name(graph, TensorId(i))});
  }
  std::vector<std::optional<LowerSetBlock>> blocks(graph.num_ops());
  std::size_t found = 0;
  for (OpId op : graph.ops()) {
    const Json fields = carried(graph.attributes(op));
    if (!fields.is_object() || !fields.contains("block")) continue;
    const auto place = small_number(fields["block"], blocks.size());
    auto block = carried_block(fields, graph.type(op), *num_variables);
    if (!place || !block || blocks[*place]) return std::nullopt;
    blocks[*place] = std::move(*block);
    ++found;
  }
  for (std::size_t i = 0; i < found; ++i) {
    if (!blocks[i]) return std::nullopt;
    file.blocks.push_back(std::move(*blocks[i]));
  }
  return file;
}

// Attributes may be stale or made up: the carried file counts only if its text is well-formed and
// gives this very structure.
bool describes(const LowerSetFile& file, const Graph& graph) {
  const auto again = read_lower_set_file(write_lower_set_file(file), "");
  if (!again.ok() || *again != file) return false;
  const auto rebuilt = graph_from_lower_sets(file, "");
  return rebuilt.ok() && rebuilt->fingerprint() == graph.fingerprint();
}

constexpr const char* kNotText = " is not UTF-8 text";

// One word for the name column.
std::string one_word(std::string name) {
  for (char& c : name) {
    if (static_cast<unsigned char>(c) <= ' ') c = '_';
  }
  return name;
}

// Without control characters and outer blanks, so that a line holds it.
std::string in_one_line(std::string_view text) {
  std::string line;
  for (char c : text) line += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  const std::size_t first = line.find_first_not_of(' ');
  return first == std::string::npos ? ""
                                    : line.substr(first, line.find_last_not_of(' ') - first + 1);
}

class Exporter {
 public:
  explicit Exporter(const Graph& graph) : graph_(graph) {}

  Result<LowerSetFile> run();

 private:
  static bool is_forward(Phase phase) { return phase == Phase::kForward || phase == Phase::kLoss; }
  Status check(OpId op) const;
  void add_variables();
  std::string variable_name(TensorId t);
  Status add_blocks(OpId op);
  bool needed_backward(TensorId t) const { return !any_backward_ || read_backward_[t]; }

  const Graph& graph_;
  LowerSetFile file_;
  std::vector<LowerSetBlock> twins_;
  IdVector<TensorId, std::uint32_t> variables_;
  IdVector<TensorId, std::uint32_t> ranks_;  // of a made tensor: the longest way to it
  IdVector<TensorId, bool> read_backward_;
  bool any_backward_ = false;
  std::size_t inputs_ = 0;
};

Status Exporter::check(OpId op) const {
  const VariantId v = graph_.default_variant(op);
  const std::string where = "op " + std::to_string(op.index()) + " " + in_quotes(graph_.name(op));
  if (graph_.makes(v).size() != 1) {
    return bad_input(where + " makes " + std::to_string(graph_.makes(v).size()) +
                     " tensors, expected 1: lower-set text has forward ops of one output only");
  }
  for (TensorId t : graph_.reads(v)) {
    if (graph_.fixed(t) || is_forward(graph_.phase(graph_.producer(t)))) continue;
    return bad_input(where + " reads tensor " + std::to_string(t.index()) +
                     " made by a backward op, expected forward values only");
  }
  // A variant's extra output may have a forward maker and still not be written.
  for (TensorId t : graph_.reads(v)) {
    if (graph_.fixed(t)) continue;
    const auto made = graph_.makes(graph_.default_variant(graph_.producer(t)));
    if (std::find(made.begin(), made.end(), t) != made.end()) continue;
    return bad_input(where + " reads tensor " + std::to_string(t.index()) +
                     ", which the default variant of its maker does not make");
  }
  return {};
}

std::string Exporter::variable_name(TensorId t) {
  if (!graph_.fixed(t)) return "_";
  if (graph_.kind(t) == TensorKind::kInput) return std::to_string(inputs_++);
  const std::string name = one_word(graph_.name(t));
  return name.starts_with("/") ? name : "/" + name;
}

void Exporter::add_variables() {
  variables_.assign(graph_.num_tensors(), 0);
  for (TensorId t : graph_.tensors()) {
    const bool written =
        graph_.fixed(t) || (is_forward(graph_.phase(graph_.producer(t))) &&
                            graph_.makes(graph_.default_variant(graph_.producer(t)))[0] == t);
    if (!written) continue;
    variables_[t] = static_cast<std::uint32_t>(file_.variables.size());
    file_.variables.push_back({graph_.bytes(t), variable_name(t)});
  }
}

Status Exporter::add_blocks(OpId op) {
  const auto reads = graph_.reads(graph_.default_variant(op));
  const TensorId output = graph_.outputs(op).empty() ? graph_.makes(graph_.default_variant(op))[0]
                                                     : graph_.outputs(op)[0];
  std::uint32_t rank = 0;
  for (TensorId t : reads) {
    if (!graph_.fixed(t)) rank = std::max(rank, ranks_[t] + 1);
  }
  ranks_[output] = rank;
  std::string name;
  REGEN_TRY(append_json_string(name, graph_.name(op)));
  std::string type = in_one_line(graph_.type(op));
  if (!is_utf8(type)) return bad_input("type " + in_quotes(type) + kNotText);
  if (type.empty()) type = "Op";
  // The solvers know a convolution by this beginning.
  if (type.starts_with("conv")) type[0] = 'C';
  LowerSetBlock forward{
      .outputs = {variables_[output]},
      .type = type,
      .attributes = "{\"name\": " + name + ", \"rank\": " + std::to_string(rank) + "}"};
  LowerSetBlock twin = forward;
  twin.backward = true;
  twin.outputs.clear();
  twin.inputs.push_back({variables_[output], LowerSetRole::kGradient});
  for (TensorId t : reads) {
    forward.inputs.push_back({variables_[t], LowerSetRole::kValue});
    twin.outputs.push_back(variables_[t]);
    if (needed_backward(t)) twin.inputs.push_back({variables_[t], LowerSetRole::kInput});
  }
  if (needed_backward(output)) twin.inputs.push_back({variables_[output], LowerSetRole::kOutput});
  file_.blocks.push_back(std::move(forward));
  twins_.push_back(std::move(twin));
  return {};
}

Result<LowerSetFile> Exporter::run() {
  read_backward_.assign(graph_.num_tensors(), false);
  ranks_.assign(graph_.num_tensors(), 0);
  for (OpId op : graph_.ops()) {
    if (is_forward(graph_.phase(op))) {
      REGEN_TRY(check(op));
    } else if (graph_.phase(op) == Phase::kBackward) {
      any_backward_ = true;
      for (TensorId t : graph_.inputs(op)) read_backward_[t] = true;
    }
  }
  add_variables();
  for (OpId op : graph_.ops()) {
    if (is_forward(graph_.phase(op))) REGEN_TRY(add_blocks(op));
  }
  if (file_.blocks.empty()) return bad_input("no forward op found, expected at least one");
  std::move(twins_.begin(), twins_.end(), std::back_inserter(file_.blocks));
  for (const LowerSetVariable& variable : file_.variables) {
    if (!is_utf8(variable.name)) return bad_input("name " + in_quotes(variable.name) + kNotText);
  }
  return std::move(file_);
}

}  // namespace

Result<LowerSetFile> lower_sets_from_graph(const Graph& graph) {
  if (auto file = carried_file(graph); file && describes(*file, graph)) return std::move(*file);
  auto file = Exporter(graph).run();
  if (!file.ok())
    return bad_input("graph " + in_quotes(graph.name()) + ": " + file.error().message);
  return file;
}

}  // namespace regen::published
