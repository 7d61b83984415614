// Reading JSON that somebody else wrote: every refusal names the place (as a path
// such as ops[3].inputs[0]), the value found and what was expected.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "regen/base/result.h"

namespace regen {

using Json = nlohmann::ordered_json;

// Parses a whole text. Nesting deeper than 64 is refused, as are duplicates of nothing
// else: the last of two equal keys wins, as in most readers.
Result<Json> parse_json(std::string_view text, std::string_view what);

// A value inside a document with the path that leads to it. Cheap to copy; the
// document must outlive it.
class JsonView {
 public:
  JsonView(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  bool has(const char* key) const { return value_->is_object() && value_->contains(key); }
  Result<JsonView> at(const char* key) const;
  JsonView item(std::size_t index) const;
  Result<std::size_t> array_size() const;

  Result<std::string> as_string() const;
  Result<bool> as_bool() const;
  Result<double> as_finite() const;
  Result<std::int64_t> as_int(std::int64_t low, std::int64_t high) const;

  // "graph.json: ops[3].bytes: -5 is out of range, expected ..."
  Error error(std::string_view problem) const;

 private:
  const Json* value_;
  std::string path_;
};

// The start of a value as text, for messages.
std::string excerpt(const Json& value);

}  // namespace regen
