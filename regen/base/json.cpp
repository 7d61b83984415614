#include "regen/base/json.h"

#include <cmath>

namespace regen {
namespace {

constexpr int kMaxDepth = 64;

// The depth of the deepest bracket outside strings.
int nesting_depth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

// nlohmann's text without its own prefix: "at line 3, column 5: ..." is what helps.
std::string parse_problem(const std::exception& error) {
  std::string text = error.what();
  if (const auto at = text.find("at line"); at != std::string::npos) text = text.substr(at);
  return text;
}

}  // namespace

std::string excerpt(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t kShown = 60;
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

Result<Json> parse_json(std::string_view text, std::string_view what) {
  if (nesting_depth(text) > kMaxDepth) {
    return bad_input(std::string(what) + ": JSON nested deeper than " + std::to_string(kMaxDepth));
  }
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    return bad_input(std::string(what) + ": not valid JSON " + parse_problem(error));
  }
}

Error JsonView::error(std::string_view problem) const {
  return bad_input(path_ + ": " + std::string(problem));
}

Result<JsonView> JsonView::at(const char* key) const {
  if (!value_->is_object()) return error(excerpt(*value_) + " found, expected an object");
  const auto found = value_->find(key);
  if (found == value_->end()) return error(std::string("field '") + key + "' is missing");
  return JsonView(*found, path_ + (path_.ends_with(": ") || path_.empty() ? "" : ".") + key);
}

JsonView JsonView::item(std::size_t index) const {
  return {(*value_)[index], path_ + "[" + std::to_string(index) + "]"};
}

Result<std::size_t> JsonView::array_size() const {
  if (!value_->is_array()) return error(excerpt(*value_) + " found, expected an array");
  return value_->size();
}

Result<std::string> JsonView::as_string() const {
  if (!value_->is_string()) return error(excerpt(*value_) + " found, expected a string");
  return value_->get<std::string>();
}

Result<bool> JsonView::as_bool() const {
  if (!value_->is_boolean()) return error(excerpt(*value_) + " found, expected true or false");
  return value_->get<bool>();
}

Result<double> JsonView::as_finite() const {
  if (!value_->is_number()) return error(excerpt(*value_) + " found, expected a number");
  const double number = value_->get<double>();
  if (!std::isfinite(number)) return error("expected a finite number");
  return number;
}

Result<std::int64_t> JsonView::as_int(std::int64_t low, std::int64_t high) const {
  const std::string range =
      "expected a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  std::int64_t number = 0;
  if (value_->is_number_unsigned()) {
    const auto large = value_->get<std::uint64_t>();
    if (large > static_cast<std::uint64_t>(INT64_MAX)) {
      return error(excerpt(*value_) + " is out of range, " + range);
    }
    number = static_cast<std::int64_t>(large);
  } else if (value_->is_number_integer()) {
    number = value_->get<std::int64_t>();
  } else {
    return error(excerpt(*value_) + " found, " + range);
  }
  if (number < low || number > high) return error(excerpt(*value_) + " is out of range, " + range);
  return number;
}

}  // namespace regen
