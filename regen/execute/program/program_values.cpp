#include "regen/execute/program/program_values.h"

namespace regen::execute {
namespace {

void collect(const Json& argument, const char* key, std::vector<std::int64_t>& found) {
  if (argument.is_array()) {
    for (const Json& item : argument) collect(item, key, found);
  } else if (argument.is_object() && argument.size() == 1 && argument.contains(key)) {
    const Json& number = argument[key];
    found.push_back(number.is_number_integer() ? number.get<std::int64_t>() : -1);
  }
}

std::vector<std::int64_t> references(const Node& node, const char* key) {
  std::vector<std::int64_t> found;
  for (const Json& argument : node.args) collect(argument, key, found);
  for (const Json& argument : node.kwargs) collect(argument, key, found);
  return found;
}

}  // namespace

std::vector<std::int64_t> value_references(const Node& node) {
  return references(node, "value");
}

std::vector<std::int64_t> scalar_references(const Node& node) {
  return references(node, "scalar");
}

std::vector<ValueId> values_read(const Node& node) {
  std::vector<ValueId> values;
  for (const std::int64_t value : value_references(node)) {
    values.push_back(ValueId(static_cast<std::size_t>(value)));
  }
  return values;
}

}  // namespace regen::execute
