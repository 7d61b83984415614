#include "regen/execute/program/call_arguments.h"

#include <algorithm>

#include "regen/execute/program/dtype.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/execute/program/program_values.h"

namespace regen::execute {
namespace {

std::string layout_text(const ValueSpec& value, std::size_t storage) {
  Json json = {dtype_name(value.dtype), value.sizes, value.strides, value.offset, storage};
  return json.dump();
}

}  // namespace

CallArguments::CallArguments(const Program& program, const Node& node)
    : program_(program), node_(node) {
  for (const ValueId value : values_read(node)) {
    values_.push_back(value);
    const StorageId storage = program.values[value].storage;
    if (std::find(storages_.begin(), storages_.end(), storage) == storages_.end()) {
      storages_.push_back(storage);
    }
  }
}

std::size_t CallArguments::place(StorageId storage) const {
  return static_cast<std::size_t>(std::find(storages_.begin(), storages_.end(), storage) -
                                  storages_.begin());
}

std::string CallArguments::key() const {
  return described_call({});
}

std::string CallArguments::problem() const {
  return described_call(beside_the_problem(node_.op));
}

std::string CallArguments::described_call(const std::vector<std::size_t>& left_out) const {
  std::string text = node_.op + "." + node_.overload + "(";
  for (std::size_t i = 0; i < node_.args.size(); ++i) {
    const bool out = std::find(left_out.begin(), left_out.end(), i) != left_out.end();
    if (!out) text += described(node_.args[i]).dump() + ",";
  }
  // By name: one named "value" is no reference to a value.
  for (auto it = node_.kwargs.begin(); it != node_.kwargs.end(); ++it) {
    text += it.key() + "=" + described(*it).dump() + ",";
  }
  text += ")";
  text += runs_with_gradients(program_, node_) ? "+" : "-";
  return text;
}

Json CallArguments::described(const Json& argument) const {
  if (argument.is_array()) {
    Json items = Json::array();
    for (const Json& item : argument) items.push_back(described(item));
    return items;
  }
  if (!argument.is_object() || !argument.contains("value")) return argument;
  const ValueSpec& value = program_.values[ValueId(argument["value"].get<std::size_t>())];
  return layout_text(value, place(value.storage));
}

}  // namespace regen::execute
