// Reading JSON from untrusted sources: a parser that takes time linear in the text whatever it
// holds, and values with their paths, so that every refusal names the place (such as
// ops[3].inputs[0]), the value found and what was expected.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "regen/base/result.h"

namespace regen {

using Json = nlohmann::ordered_json;

// Parses a whole text; `what` names it in messages. Nesting deeper than 64 and a key given twice
// in one object are refused.
Result<Json> parse_json(std::string_view text, std::string_view what);

// A value inside a document and the way to it. It holds no text, so that reading a million values
// costs no million paths. The document, the parents and the source must outlive it; all three
// normally live further up the stack.
class JsonCursor {
 public:
  JsonCursor(const Json& document, std::string_view source) : value_(&document), key_(source) {}

  const Json& value() const { return *value_; }
  JsonCursor member(std::string_view key, const Json& value) const {
    return JsonCursor(value, this, key, 0);
  }
  JsonCursor item(std::size_t index) const { return JsonCursor((*value_)[index], this, {}, index); }

  Status expect_object() const;
  Result<std::size_t> array_size() const;
  Result<std::string> string() const;
  Result<bool> boolean() const;
  Result<double> finite() const;
  Result<double> not_negative() const;
  Result<std::int64_t> whole(std::int64_t low, std::int64_t high) const;

  // "graph.json: ops[3].bytes: " before the problem.
  Error error(std::string_view problem) const;
  // For a key that the format does not have; `expected` lists those it has.
  Error unknown_field(std::string_view key, std::string_view expected) const;
  Error missing_field(std::string_view key) const;

 private:
  JsonCursor(const Json& value, const JsonCursor* parent, std::string_view key, std::size_t index)
      : value_(&value), parent_(parent), key_(key), index_(index) {}
  void append_path(std::string& path) const;

  const Json* value_;
  const JsonCursor* parent_ = nullptr;  // null for the document
  std::string_view key_;                // of an object's member; the source of the document
  std::size_t index_ = 0;               // of an array's item
};

// Appends the text as a JSON string; fails when it is not UTF-8.
Status append_json_string(std::string& out, std::string_view text);

// The start of a value as text, for messages.
std::string excerpt(const Json& value);

}  // namespace regen
