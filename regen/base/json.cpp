#include "regen/base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "regen/base/text.h"
#include "regen/base/utf8.h"

namespace regen {
namespace {

constexpr std::size_t kMaxDepth = 64;

// nlohmann's text without its own prefixes: "at line 3, column 5: ..." is what helps. It quotes
// what it read last, however long.
std::string parse_problem(const std::exception& error) {
  std::string_view text = error.what();
  if (const auto at = text.find("at line"); at != std::string_view::npos) {
    text.remove_prefix(at);
  } else if (const auto end = text.find("] "); end != std::string_view::npos) {
    text.remove_prefix(end + 2);
  }
  return on_one_line(text, 200);
}

// Builds the document itself, because the ordered objects of nlohmann search all earlier keys
// for every new one.
class DocumentBuilder {
 public:
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    key_ = std::move(value);
    return true;
  }
  bool end_object() {
    if (const std::string* twice = repeated_key(open_.back()->get_ref<Json::object_t&>())) {
      problem_ = "key " + in_quotes(*twice) + " is given twice in one object";
      return false;
    }
    return close();
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) {
    problem_ = "not valid JSON " + parse_problem(error);
    return false;
  }

  Json& document() { return document_; }
  const std::string& problem() const { return problem_; }

 private:
  Json& place(Json value) {
    if (open_.empty()) return document_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_array()) {
      return parent.get_ref<Json::array_t&>().emplace_back(std::move(value));
    }
    // The vector under the ordered map: appends without the search.
    std::vector<Json::object_t::value_type>& members = parent.get_ref<Json::object_t&>();
    if (members.empty()) members.reserve(4);
    return members.emplace_back(std::move(key_), std::move(value)).second;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (open_.size() == kMaxDepth) {
      problem_ = "JSON nested deeper than " + std::to_string(kMaxDepth);
      return false;
    }
    open_.push_back(&place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  static const std::string* repeated_key(const Json::object_t& object) {
    if (object.size() <= 12) {
      for (auto second = object.begin(); second != object.end(); ++second) {
        for (auto first = object.begin(); first != second; ++first) {
          if (first->first == second->first) return &first->first;
        }
      }
      return nullptr;
    }
    std::vector<const std::string*> keys;
    keys.reserve(object.size());
    for (const auto& [key, value] : object) keys.push_back(&key);
    const auto less = [](auto* a, auto* b) { return *a < *b; };
    std::sort(keys.begin(), keys.end(), less);
    const auto equal = [](auto* a, auto* b) { return *a == *b; };
    const auto found = std::adjacent_find(keys.begin(), keys.end(), equal);
    return found == keys.end() ? nullptr : *found;
  }

  Json document_;
  std::vector<Json*> open_;  // the containers around the present place, outermost first
  std::string key_;
  std::string problem_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what) {
  DocumentBuilder builder;
  if (!Json::sax_parse(text, &builder)) {
    return bad_input(std::string(what) + ": " + builder.problem());
  }
  return std::move(builder.document());
}

Status JsonCursor::expect_object() const {
  if (value_->is_object()) return {};
  return error(excerpt(*value_) + " found, expected an object");
}

Result<std::size_t> JsonCursor::array_size() const {
  if (value_->is_array()) return value_->size();
  return error(excerpt(*value_) + " found, expected an array");
}

Result<std::string> JsonCursor::string() const {
  if (value_->is_string()) return value_->get_ref<const std::string&>();
  return error(excerpt(*value_) + " found, expected a string");
}

Result<bool> JsonCursor::boolean() const {
  if (value_->is_boolean()) return value_->get<bool>();
  return error(excerpt(*value_) + " found, expected true or false");
}

Result<double> JsonCursor::finite() const {
  if (!value_->is_number()) return error(excerpt(*value_) + " found, expected a number");
  const double number = value_->get<double>();
  if (!std::isfinite(number)) return error("expected a finite number");
  return number;
}

Result<double> JsonCursor::not_negative() const {
  auto number = finite();
  if (number.ok() && *number < 0) {
    return error(excerpt(*value_) + " found, expected a number that is not negative");
  }
  return number;
}

Result<std::int64_t> JsonCursor::whole(std::int64_t low, std::int64_t high) const {
  if (value_->is_number_unsigned()) {
    const auto number = value_->get<std::uint64_t>();
    constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
    if (number <= kLargest && static_cast<std::int64_t>(number) >= low &&
        static_cast<std::int64_t>(number) <= high) {
      return static_cast<std::int64_t>(number);
    }
  } else if (value_->is_number_integer()) {
    const auto number = value_->get<std::int64_t>();
    if (number >= low && number <= high) return number;
  }
  return error(excerpt(*value_) + " found, expected a whole number from " + std::to_string(low) +
               " to " + std::to_string(high));
}

void JsonCursor::append_path(std::string& path) const {
  if (!parent_) {
    path += std::string(key_) + ": ";
    return;
  }
  parent_->append_path(path);
  if (key_.empty()) {
    path += "[" + std::to_string(index_) + "]";
  } else {
    if (!path.ends_with(": ")) path += ".";
    path += key_;
  }
}

Error JsonCursor::error(std::string_view problem) const {
  std::string text;
  append_path(text);
  if (!text.ends_with(": ")) text += ": ";
  return bad_input(text + std::string(problem));
}

Error JsonCursor::unknown_field(std::string_view key, std::string_view expected) const {
  return error("unknown field " + in_quotes(key) + ", expected one of " + std::string(expected));
}

Error JsonCursor::missing_field(std::string_view key) const {
  return error("field " + in_quotes(key) + " is missing");
}

Status append_json_string(std::string& out, std::string_view text) {
  const auto plain = [](char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\'; };
  if (std::all_of(text.begin(), text.end(), plain)) {
    out += '"';
    out += text;
    out += '"';
    return {};
  }
  if (!is_utf8(text)) {
    return bad_input(in_quotes(text) + " is not UTF-8 text, so JSON cannot hold it");
  }
  out += Json(text).dump();
  return {};
}

std::string excerpt(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t kShown = 60;
  return text.size() <= kShown ? text : std::string(first_bytes(text, kShown)) + "...";
}

}  // namespace regen
