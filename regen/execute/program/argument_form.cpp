#include "regen/execute/program/argument_form.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "regen/execute/program/dtype.h"

namespace regen::execute {
namespace {

// A tensor that a node reads, or a number that changes from step to step.
Status check_reference(const JsonCursor& at, const char* what, std::size_t count) {
  const bool known =
      at.value().is_number_integer() && at.whole(0, static_cast<std::int64_t>(count) - 1).ok();
  if (known) return {};
  return at.error("an argument refers to " + std::string(what) + " " + excerpt(at.value()) +
                  ", of " + std::to_string(count) + " of which the first is 0");
}

template <std::size_t N>
Status check_choice(const JsonCursor& at, const std::array<std::string_view, N>& names) {
  REGEN_ASSIGN(const std::string text, at.string());
  if (std::ranges::find(names, text) != names.end()) return {};
  std::string expected;
  for (const std::string_view name : names) expected += ", " + std::string(name);
  return at.error(excerpt(at.value()) + " found, expected one of " + expected.substr(2));
}

Status check_dtype(const JsonCursor& at) {
  REGEN_ASSIGN(const std::string text, at.string());
  const auto dtype = parse_dtype(text);
  return dtype.ok() ? Status() : at.error(dtype.error().message);
}

Status check_object(const JsonCursor& at, const ArgumentRange& range) {
  static constexpr std::array<std::string_view, 3> kNumbers{"inf", "-inf", "nan"};
  static constexpr std::array<std::string_view, 4> kFormats{"contiguous_format", "preserve_format",
                                                            "channels_last", "channels_last_3d"};
  if (at.value().size() != 1) {
    return at.error("an argument with " + std::to_string(at.value().size()) +
                    " keys found, expected one, as in {\"value\": 0}");
  }
  const std::string key = at.value().begin().key();
  const JsonCursor content = at.member(key, *at.value().begin());
  if (key == "value") return check_reference(content, "value", range.values);
  if (key == "scalar") return check_reference(content, "scalar", range.scalars);
  if (key == "number") return check_choice(content, kNumbers);
  if (key == "memory_format") return check_choice(content, kFormats);
  if (key == "dtype") return check_dtype(content);
  // There is one layout, and one device: that of the program.
  if (key == "layout" || key == "device") {
    return content.string().ok() ? Status() : content.error("expected a name");
  }
  return at.error("an argument with the key '" + key.substr(0, 60) +
                  "' found, expected one of value, scalar, number, dtype, layout, memory_format, "
                  "device");
}

}  // namespace

Status check_argument(const JsonCursor& argument, const ArgumentRange& range) {
  const Json& value = argument.value();
  if (value.is_object()) return check_object(argument, range);
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      REGEN_TRY(check_argument(argument.item(i), range));
    }
    return {};
  }
  const bool plain = value.is_null() || value.is_boolean() || value.is_string();
  if (plain) return {};
  if (!value.is_number()) return argument.error(excerpt(value) + " is no argument");
  // Torch counts in 64 bits with a sign; what is larger would change its value on the way.
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) {
    return argument.error(excerpt(value) + " found, expected a number of 64 bits with a sign");
  }
  const auto number = argument.finite();
  return number.ok() ? Status() : number.error();
}

}  // namespace regen::execute
