#include "regen/execute/program/program.h"

#include <algorithm>
#include <array>
#include <limits>

#include "regen/base/file.h"
#include "regen/base/json_fields.h"
#include "regen/base/text.h"
#include "regen/execute/program/argument_form.h"
#include "regen/execute/program/dtype.h"
#include "regen/execute/program/program_values.h"

namespace regen::execute {
namespace {

constexpr int kFormatVersion = 1;
constexpr std::array<std::string_view, 7> kRoles{"input",    "parameter", "buffer",  "state",
                                                 "constant", "tangent",   "computed"};
constexpr std::array<std::string_view, 2> kResultKinds{"output", "gradient"};

// The place of the text in `names`.
template <typename Choice, std::size_t N>
Result<Choice> read_choice(const JsonCursor& at, const std::array<std::string_view, N>& names) {
  REGEN_ASSIGN(const std::string text, at.string());
  std::string expected;
  for (std::size_t i = 0; i < N; ++i) {
    if (text == names[i]) return static_cast<Choice>(i);
    expected += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  return at.error('"' + text + "\" found, expected one of " + expected);
}

template <typename T>
Status store(T& target, Result<T> result) {
  if (!result.ok()) return result.error();
  target = std::move(result).value();
  return {};
}

template <typename I>
Result<I> read_id(const JsonCursor& at, std::size_t count) {
  REGEN_ASSIGN(const std::int64_t id, at.whole(0, static_cast<std::int64_t>(count) - 1));
  return I(static_cast<std::size_t>(id));
}

Result<std::vector<std::int64_t>> read_integers(const JsonCursor& at, std::int64_t low) {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  std::vector<std::int64_t> numbers(size);
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_TRY(store(numbers[i], at.item(i).whole(low, kMaxBytes)));
  }
  return numbers;
}

// Torch throws at other names.
bool is_device(std::string_view name) {
  if (name == "cpu" || name == "cuda") return true;
  constexpr std::string_view kNumbered = "cuda:";
  if (!name.starts_with(kNumbered)) return false;
  name.remove_prefix(kNumbered.size());
  return !name.empty() && name.size() <= 2 && (name == "0" || name[0] != '0') &&
         std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

class Reader {
 public:
  Reader(const Json& document, std::string_view source) : root_(document, source) {}

  Result<Program> read() {
    REGEN_TRY(check_format(root_, "regen-program", kFormatVersion));
    REGEN_TRY(refuse_unknown_fields(
        root_, {"format", "version", "name", "torch", "device", "storages", "values", "nodes",
                "boundary", "gradients", "scalars", "results", "data"}));
    REGEN_TRY(read_text(root_, "name", program_.name));
    REGEN_TRY(read_text(root_, "torch", program_.torch));
    REGEN_TRY(read_text(root_, "device", program_.device));
    REGEN_TRY(each("storages", true, [this](const JsonCursor& at) { return read_storage(at); }));
    REGEN_TRY(each("values", true, [this](const JsonCursor& at) { return read_value(at); }));
    REGEN_TRY(each("scalars", false, [this](const JsonCursor& at) { return read_scalar(at); }));
    REGEN_TRY(each("nodes", true, [this](const JsonCursor& at) { return read_node(at); }));
    REGEN_TRY(each("results", false, [this](const JsonCursor& at) { return read_result(at); }));
    REGEN_TRY(each("data", false, [this](const JsonCursor& at) { return read_data(at); }));
    REGEN_TRY(read_boundary());
    REGEN_TRY(read_gradients());
    REGEN_TRY(check_order());
    return std::move(program_);
  }

 private:
  template <typename Function>
  Status each(const char* key, bool required, Function read_item) {
    if (!has_field(root_, key)) {
      if (required) return root_.missing_field(key);
      return {};
    }
    REGEN_ASSIGN(const JsonCursor list, required_field(root_, key));
    REGEN_ASSIGN(const std::size_t size, list.array_size());
    for (std::size_t i = 0; i < size; ++i) REGEN_TRY(read_item(list.item(i)));
    return {};
  }

  Status read_storage(const JsonCursor& at) {
    REGEN_TRY(refuse_unknown_fields(at, {"name", "role", "bytes", "device"}));
    StorageSpec storage;
    REGEN_TRY(read_text(at, "name", storage.name));
    if (has_field(at, "device")) {
      REGEN_TRY(read_text(at, "device", storage.device));
      if (!storage.device.empty() && !is_device(storage.device)) {
        return at.error("device: " + in_quotes(storage.device) +
                        " found, expected cpu, cuda or cuda:1");
      }
    }
    REGEN_ASSIGN(const JsonCursor role, required_field(at, "role"));
    REGEN_TRY(store(storage.role, read_choice<Role>(role, kRoles)));
    REGEN_ASSIGN(const JsonCursor bytes, required_field(at, "bytes"));
    REGEN_TRY(store(storage.bytes, bytes.whole(0, kMaxBytes)));
    program_.storages.push_back(std::move(storage));
    return {};
  }

  Status read_value(const JsonCursor& at) {
    REGEN_TRY(refuse_unknown_fields(at, {"storage", "dtype", "sizes", "strides", "offset"}));
    ValueSpec value;
    REGEN_ASSIGN(const JsonCursor storage, required_field(at, "storage"));
    REGEN_TRY(store(value.storage, read_id<StorageId>(storage, program_.storages.size())));
    REGEN_ASSIGN(const JsonCursor dtype, required_field(at, "dtype"));
    REGEN_ASSIGN(const std::string name, dtype.string());
    const auto type = parse_dtype(name);
    if (!type.ok()) return dtype.error(type.error().message);
    value.dtype = *type;
    REGEN_ASSIGN(const JsonCursor sizes, required_field(at, "sizes"));
    REGEN_TRY(store(value.sizes, read_integers(sizes, 0)));
    REGEN_ASSIGN(const JsonCursor strides, required_field(at, "strides"));
    REGEN_TRY(store(value.strides, read_integers(strides, 0)));
    REGEN_ASSIGN(const JsonCursor offset, required_field(at, "offset"));
    REGEN_TRY(store(value.offset, offset.whole(0, kMaxBytes)));
    if (value.sizes.size() != value.strides.size()) {
      return at.error(std::to_string(value.sizes.size()) + " sizes but " +
                      std::to_string(value.strides.size()) + " strides found, expected as many");
    }
    REGEN_TRY(check_view(at, value));
    program_.values.push_back(std::move(value));
    return {};
  }

  // What a caller brings is used as it is, so that a view must not reach beyond it. Views on
  // computed storages are predictions.
  Status check_view(const JsonCursor& at, const ValueSpec& value) const {
    const StorageSpec& storage = program_.storages[value.storage];
    if (storage.role == Role::kComputed) return {};
    if (fits_in(value, storage.bytes)) return {};
    return at.error("reaches beyond storage " + std::to_string(value.storage.index()) + " '" +
                    storage.name + "', which has " + std::to_string(storage.bytes) + " bytes");
  }

  Status read_scalar(const JsonCursor& at) {
    REGEN_TRY(refuse_unknown_fields(at, {"name", "value"}));
    ScalarSpec scalar;
    REGEN_TRY(read_text(at, "name", scalar.name));
    REGEN_TRY(read_number(at, "value", scalar.value));
    program_.scalars.push_back(std::move(scalar));
    return {};
  }

  Status read_node(const JsonCursor& at) {
    REGEN_TRY(refuse_unknown_fields(at, {"name", "op", "overload", "args", "kwargs", "outputs",
                                         "phase", "random", "recomputable", "source", "module"}));
    Node node;
    REGEN_TRY(read_text(at, "name", node.name));
    REGEN_TRY(read_text(at, "op", node.op));
    REGEN_TRY(read_text(at, "overload", node.overload));
    REGEN_TRY(read_text(at, "source", node.source));
    if (has_field(at, "module")) REGEN_TRY(read_text(at, "module", node.module.emplace()));
    REGEN_ASSIGN(const JsonCursor args, required_field(at, "args"));
    REGEN_ASSIGN(const std::size_t count, args.array_size());
    const ArgumentRange range{program_.values.size(), program_.scalars.size()};
    for (std::size_t i = 0; i < count; ++i) {
      REGEN_TRY(check_argument(args.item(i), range));
      node.args.push_back(args.item(i).value());
    }
    if (has_field(at, "kwargs")) {
      REGEN_ASSIGN(const JsonCursor kwargs, required_field(at, "kwargs"));
      REGEN_TRY(kwargs.expect_object());
      for (auto it = kwargs.value().begin(); it != kwargs.value().end(); ++it) {
        REGEN_TRY(check_argument(kwargs.member(it.key(), *it), range));
      }
      node.kwargs = kwargs.value();
    }
    REGEN_TRY(read_outputs(at, node));
    REGEN_TRY(read_flags(at, node));
    program_.nodes.push_back(std::move(node));
    return {};
  }

  Status read_outputs(const JsonCursor& at, Node& node) {
    REGEN_ASSIGN(const JsonCursor outputs, required_field(at, "outputs"));
    REGEN_ASSIGN(const std::size_t size, outputs.array_size());
    node.outputs.resize(size);
    for (std::size_t i = 0; i < size; ++i) {
      const JsonCursor item = outputs.item(i);
      if (item.value().is_null()) continue;
      REGEN_TRY(store(node.outputs[i], read_id<ValueId>(item, program_.values.size())));
    }
    return {};
  }

  Status read_flags(const JsonCursor& at, Node& node) {
    REGEN_ASSIGN(const JsonCursor phase, required_field(at, "phase"));
    REGEN_ASSIGN(const std::string phase_name, phase.string());
    const auto parsed = parse_phase(phase_name);
    if (!parsed.ok()) return phase.error(parsed.error().message);
    node.phase = *parsed;
    for (const auto& [key, flag] :
         {std::pair{"random", &node.random}, std::pair{"recomputable", &node.recomputable}}) {
      if (!has_field(at, key)) continue;
      REGEN_ASSIGN(const JsonCursor field, required_field(at, key));
      REGEN_TRY(store(*flag, field.boolean()));
    }
    return {};
  }

  Status read_result(const JsonCursor& at) {
    REGEN_TRY(refuse_unknown_fields(at, {"value", "kind", "name"}));
    ProgramResult result;
    REGEN_ASSIGN(const JsonCursor value, required_field(at, "value"));
    REGEN_TRY(store(result.value, read_id<ValueId>(value, program_.values.size())));
    REGEN_ASSIGN(const JsonCursor kind, required_field(at, "kind"));
    REGEN_TRY(store(result.kind, read_choice<ResultKind>(kind, kResultKinds)));
    REGEN_TRY(read_text(at, "name", result.name));
    program_.results.push_back(std::move(result));
    return {};
  }

  Status read_data(const JsonCursor& at) {
    REGEN_TRY(refuse_unknown_fields(at, {"storage", "offset", "bytes"}));
    DataSpec data;
    REGEN_ASSIGN(const JsonCursor storage, required_field(at, "storage"));
    REGEN_TRY(store(data.storage, read_id<StorageId>(storage, program_.storages.size())));
    REGEN_ASSIGN(const JsonCursor offset, required_field(at, "offset"));
    REGEN_TRY(store(data.offset, offset.whole(0, kMaxBytes)));
    REGEN_ASSIGN(const JsonCursor bytes, required_field(at, "bytes"));
    REGEN_TRY(store(data.bytes, bytes.whole(0, kMaxBytes)));
    program_.data.push_back(data);
    return {};
  }

  Status read_boundary() {
    if (!has_field(root_, "boundary")) return {};
    REGEN_ASSIGN(const JsonCursor boundary, required_field(root_, "boundary"));
    if (boundary.value().is_null()) return {};
    REGEN_ASSIGN(const std::int64_t nodes,
                 boundary.whole(0, static_cast<std::int64_t>(program_.nodes.size())));
    program_.boundary = static_cast<std::size_t>(nodes);
    return {};
  }

  Status read_gradients() {
    if (!has_field(root_, "gradients")) return {};
    REGEN_ASSIGN(const JsonCursor field, required_field(root_, "gradients"));
    return store(program_.gradients, field.boolean());
  }

  // Every value is made once, and before it is read. What exists before the step may be made by a
  // node as well, as a view of itself.
  Status check_order() const {
    IdVector<ValueId, bool> known(program_.values.size(), false);
    IdVector<ValueId, bool> made(program_.values.size(), false);
    IdVector<ValueId, bool> read(program_.values.size(), false);
    for (std::size_t v = 0; v < known.size(); ++v) {
      known[ValueId(v)] =
          program_.storages[program_.values[ValueId(v)].storage].role != Role::kComputed;
    }
    for (std::size_t n = 0; n < program_.nodes.size(); ++n) {
      const Node& node = program_.nodes[NodeId(n)];
      for (const std::int64_t value : value_references(node)) {
        const ValueId id(static_cast<std::size_t>(value));
        read[id] = true;
        if (known[id]) continue;
        return root_.error(describe(program_, NodeId(n)) + " reads value " + std::to_string(value) +
                           ", which no earlier node makes");
      }
      for (const ValueId output : node.outputs) {
        if (!output.valid()) continue;
        if (made[output] || read[output]) {
          return root_.error(describe(program_, NodeId(n)) + " makes value " +
                             std::to_string(output.index()) + ", which was " +
                             (made[output] ? "made" : "read") + " before");
        }
        known[output] = made[output] = true;
      }
    }
    for (const ProgramResult& result : program_.results) {
      if (!known[result.value]) {
        return root_.error("result \"" + result.name + "\" is value " +
                           std::to_string(result.value.index()) + ", which no node makes");
      }
    }
    return {};
  }

  JsonCursor root_;
  Program program_;
};

Json id_or_null(ValueId id) {
  return id.valid() ? Json(id.index()) : Json(nullptr);
}

Json to_json(const Node& node) {
  Json outputs = Json::array();
  for (const ValueId id : node.outputs) outputs.push_back(id_or_null(id));
  Json json = {{"name", node.name},
               {"op", node.op},
               {"overload", node.overload},
               {"phase", to_string(node.phase)},
               {"args", node.args},
               {"kwargs", node.kwargs},
               {"outputs", outputs},
               {"random", node.random},
               {"recomputable", node.recomputable},
               {"source", node.source}};
  if (node.module) json["module"] = *node.module;
  return json;
}

}  // namespace

std::string_view to_string(Role role) {
  return kRoles[static_cast<std::size_t>(role)];
}

bool fits_in(const ValueSpec& value, Bytes bytes) {
  double last = static_cast<double>(value.offset);  // exact as far as any storage reaches
  for (std::size_t i = 0; i < value.sizes.size(); ++i) {
    if (value.sizes[i] == 0) return true;
    last += static_cast<double>(value.sizes[i] - 1) * static_cast<double>(value.strides[i]);
  }
  const double end = (last + 1) * static_cast<double>(c10::elementSize(value.dtype));
  return end <= static_cast<double>(bytes);
}

Result<Program> read_program(std::string_view json, std::string_view source) {
  REGEN_ASSIGN(const Json document, parse_json(json, source));
  return Reader(document, source).read();
}

std::string write_program(const Program& program) {
  Json json = {{"format", "regen-program"},
               {"version", kFormatVersion},
               {"name", program.name},
               {"torch", program.torch},
               {"device", program.device}};
  json["storages"] = Json::array();
  for (const StorageSpec& s : program.storages) {
    Json storage = {{"name", s.name}, {"role", to_string(s.role)}, {"bytes", s.bytes}};
    if (!s.device.empty()) storage["device"] = s.device;
    json["storages"].push_back(std::move(storage));
  }
  json["values"] = Json::array();
  for (const ValueSpec& v : program.values) {
    json["values"].push_back({{"storage", v.storage.index()},
                              {"dtype", dtype_name(v.dtype)},
                              {"sizes", v.sizes},
                              {"strides", v.strides},
                              {"offset", v.offset}});
  }
  json["nodes"] = Json::array();
  for (const Node& node : program.nodes) json["nodes"].push_back(to_json(node));
  json["boundary"] = program.boundary ? Json(*program.boundary) : Json(nullptr);
  if (!program.gradients) json["gradients"] = false;
  json["scalars"] = Json::array();
  for (const ScalarSpec& s : program.scalars) {
    json["scalars"].push_back({{"name", s.name}, {"value", s.value}});
  }
  json["results"] = Json::array();
  for (const ProgramResult& r : program.results) {
    json["results"].push_back({{"value", r.value.index()},
                               {"kind", kResultKinds[static_cast<std::size_t>(r.kind)]},
                               {"name", r.name}});
  }
  json["data"] = Json::array();
  for (const DataSpec& d : program.data) {
    json["data"].push_back(
        {{"storage", d.storage.index()}, {"offset", d.offset}, {"bytes", d.bytes}});
  }
  return json.dump() + "\n";
}

Result<Program> load_program(const std::string& folder) {
  const std::string path = folder + "/program.json";
  const auto text = read_file(path);
  if (!text.ok()) {
    return Error{
        text.error().code,
        text.error().message + ", expected a folder that regen.capture.save() has written"};
  }
  return read_program(*text, path);
}

Result<std::string> load_data(const std::string& folder, const Program& program,
                              StorageId storage) {
  for (const DataSpec& data : program.data) {
    if (data.storage != storage) continue;
    return read_file_part(folder + "/data.bin", data.offset, data.bytes);
  }
  return bad_input(folder + ": storage " + std::to_string(storage.index()) + " '" +
                   program.storages[storage].name + "' has no data, expected an entry in data");
}

std::string describe(const Program& program, NodeId id) {
  const Node& node = program.nodes[id];
  std::string text = "node " + std::to_string(id.index()) + " " + node.op;
  if (!node.overload.empty()) text += "." + node.overload;
  text += " '" + node.name + "'";
  if (!node.source.empty()) text += " (" + node.source + ")";
  return text;
}

}  // namespace regen::execute
