// What the JSON graph formats share: a parser that takes time linear in the text whatever it
// holds, values whose path is put together only for a message, and the writing of strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "regen/base/json.h"
#include "regen/base/result.h"

namespace regen {

// As parse_json, but linear also for objects with very many keys, and a key given twice in one
// object is refused. `what` names the text in messages.
Result<Json> parse_json_strictly(std::string_view text, std::string_view what);

// A value inside a document and the way to it. Unlike JsonView it holds no text, so that reading
// a million values costs no million paths. The document, the parents and the source must outlive
// it; all three normally live further up the stack.
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

bool is_utf8(std::string_view text);

// The text in quotes for a message: on one line, shortened when long.
std::string in_quotes(std::string_view text);

}  // namespace regen
