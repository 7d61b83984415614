#include "regen/execute/program/operator_call.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "regen/execute/program/dtype.h"

namespace regen::execute {
namespace {

using c10::IValue;
using c10::TypeKind;

class ArgumentReader {
 public:
  explicit ArgumentReader(const ArgumentSource& source) : source_(source) {}

  Result<IValue> read(const Json& json, const c10::Type& type) const {
    if (json.is_null()) return null_of(type);
    if (const auto* optional = type.castRaw<c10::OptionalType>()) {
      return read(json, *optional->getElementType());
    }
    if (json.is_array()) return read_list(json, type);
    REGEN_ASSIGN(IValue value, json.is_object() ? read_special(json) : read_plain(json, type));
    if (type.kind() == TypeKind::TensorType && value.isScalar()) {
      return IValue(wrapped_number(value.toScalar()));
    }
    return value;
  }

 private:
  // An absent tensor is an undefined one where the schema does not say that it may be None.
  static Result<IValue> null_of(const c10::Type& type) {
    if (type.kind() == TypeKind::TensorType) return IValue(at::Tensor());
    return IValue();
  }

  // A number in a tensor's place, which like in Python does not decide the result's type. Its
  // bytes are the program's, like the tensor object around them, and no memory of the step: they
  // do not come from torch's allocator, whose bytes are budgeted.
  static at::Tensor wrapped_number(const at::Scalar& number) {
    auto* cell = new std::int64_t(0);
    if (number.isFloatingPoint()) {
      const double value = number.toDouble();
      std::memcpy(cell, &value, sizeof value);
    } else if (number.isBoolean()) {
      const bool value = number.toBool();
      std::memcpy(cell, &value, sizeof value);
    } else {
      *cell = number.toLong();
    }
    const auto free_cell = [](void* data) { delete static_cast<std::int64_t*>(data); };
    at::Tensor tensor =
        at::from_blob(cell, {}, free_cell, at::TensorOptions().dtype(number.type()));
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  }

  Result<IValue> read_plain(const Json& json, const c10::Type& type) const {
    if (json.is_boolean()) return IValue(json.get<bool>());
    if (json.is_string()) return IValue(json.get<std::string>());
    if (!json.is_number()) return bad_input(excerpt(json) + " is no argument");
    const bool wants_float = type.kind() == TypeKind::FloatType;
    if (json.is_number_integer() && !wants_float) return IValue(json.get<std::int64_t>());
    return IValue(json.get<double>());
  }

  Result<IValue> read_special(const Json& json) const {
    if (json.size() != 1) return bad_input(excerpt(json) + " is no argument, expected one key");
    const std::string key = json.begin().key();
    const Json& content = *json.begin();
    if (key == "value") return IValue(source_.tensor(ValueId(content.get<std::size_t>())));
    if (key == "scalar") return IValue(source_.scalars[content.get<std::size_t>()]);
    if (key == "number") return IValue(special_number(content.get<std::string>()));
    if (key == "device") return IValue(source_.device);
    if (key == "dtype") {
      REGEN_ASSIGN(const c10::ScalarType dtype, parse_dtype(content.get<std::string>()));
      return IValue(dtype);
    }
    if (key == "layout") return IValue(c10::Layout::Strided);
    if (key == "memory_format") return read_memory_format(content.get<std::string>());
    return bad_input(excerpt(json) + " is no argument");
  }

  static double special_number(const std::string& text) {
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    return std::numeric_limits<double>::quiet_NaN();
  }

  static Result<IValue> read_memory_format(const std::string& name) {
    using c10::MemoryFormat;
    for (const auto& [text, format] :
         {std::pair{"contiguous_format", MemoryFormat::Contiguous},
          std::pair{"preserve_format", MemoryFormat::Preserve},
          std::pair{"channels_last", MemoryFormat::ChannelsLast},
          std::pair{"channels_last_3d", MemoryFormat::ChannelsLast3d}}) {
      if (name == text) return IValue(format);
    }
    return bad_input("\"" + name + "\" is no memory format");
  }

  Result<IValue> read_list(const Json& json, const c10::Type& type) const {
    const auto* list = type.castRaw<c10::ListType>();
    if (list == nullptr) return bad_input(excerpt(json) + " is a list, expected " + type.str());
    const c10::TypePtr& element = list->getElementType();
    c10::impl::GenericList items(element);
    items.reserve(json.size());
    for (const Json& item : json) {
      REGEN_ASSIGN(IValue value, read(item, *element));
      items.push_back(std::move(value));
    }
    // Typed lists are what the unboxed kernels expect; a generic one holds the same elements.
    return IValue(items);
  }

  const ArgumentSource& source_;
};

void collect_values(const Json& json, std::vector<ValueId>& values) {
  if (json.is_array()) {
    for (const Json& item : json) collect_values(item, values);
  } else if (json.is_object() && json.contains("value")) {
    values.push_back(ValueId(json["value"].get<std::size_t>()));
  }
}

}  // namespace

Result<c10::OperatorHandle> find_operator(const Program& program, NodeId node) {
  const Node& call = program.nodes[node];
  const auto handle = c10::Dispatcher::singleton().findSchema({call.op, call.overload});
  if (handle) return *handle;
  return bad_input(
      describe(program, node) +
      ": this build of PyTorch has no such operator, expected what registers it, or torch " +
      program.torch + ", with which the step was captured");
}

const Json* argument_json(const Node& node, const c10::FunctionSchema& schema,
                          std::size_t position) {
  if (position < node.args.size()) return &node.args[position];
  const auto found = node.kwargs.find(schema.arguments()[position].name());
  return found == node.kwargs.end() ? nullptr : &*found;
}

Result<c10::IValue> make_argument(const Json& json, const c10::Argument& wanted,
                                  const ArgumentSource& source) {
  return ArgumentReader(source).read(json, *wanted.type());
}

Result<torch::jit::Stack> make_arguments(const Program& program, NodeId node,
                                         const c10::FunctionSchema& schema,
                                         const ArgumentSource& source) {
  const Node& call = program.nodes[node];
  const auto& wanted = schema.arguments();
  if (call.args.size() > wanted.size()) {
    return bad_input(describe(program, node) + ": " + std::to_string(call.args.size()) +
                     " arguments found, expected at most " + std::to_string(wanted.size()));
  }
  torch::jit::Stack stack;
  stack.reserve(wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Json* json = argument_json(call, schema, i);
    if (json == nullptr) {
      if (!wanted[i].default_value()) {
        return bad_input(describe(program, node) + ": argument '" + wanted[i].name() +
                         "' is missing");
      }
      stack.push_back(*wanted[i].default_value());
      continue;
    }
    auto value = make_argument(*json, wanted[i], source);
    if (!value.ok()) {
      return bad_input(describe(program, node) + ": argument '" + wanted[i].name() +
                       "': " + value.error().message);
    }
    stack.push_back(std::move(value).value());
  }
  return stack;
}

std::vector<at::Tensor> take_results(torch::jit::Stack& stack) {
  std::vector<at::Tensor> results;
  for (IValue& value : stack) {
    if (value.isTensor()) {
      results.push_back(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
    } else {
      results.emplace_back();
    }
  }
  stack.clear();
  return results;
}

std::vector<std::size_t> written_arguments(const c10::FunctionSchema& schema) {
  std::vector<std::size_t> written;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) written.push_back(i);
  }
  return written;
}

namespace {

// Fused optimizers declare that they write gradients; they do so only to undo a loss scale.
bool leaves_gradients(const Node& node, const c10::FunctionSchema& schema) {
  if (!node.op.starts_with("aten::_fused_")) return false;
  const auto position = schema.argumentIndexWithName("grad_scale");
  if (!position) return false;
  const Json* json = argument_json(node, schema, static_cast<std::size_t>(*position));
  return json == nullptr || json->is_null();
}

}  // namespace

std::vector<StorageId> written_storages(const Program& program, const Node& node,
                                        const c10::FunctionSchema& schema) {
  std::vector<StorageId> storages;
  const bool gradients_stay = leaves_gradients(node, schema);
  for (const std::size_t position : written_arguments(schema)) {
    if (gradients_stay && schema.arguments()[position].name() == "grads") continue;
    const Json* json = argument_json(node, schema, position);
    if (json == nullptr) continue;
    std::vector<ValueId> values;
    collect_values(*json, values);
    for (const ValueId value : values) {
      const StorageId storage = program.values[value].storage;
      if (std::find(storages.begin(), storages.end(), storage) == storages.end()) {
        storages.push_back(storage);
      }
    }
  }
  return storages;
}

}  // namespace regen::execute
