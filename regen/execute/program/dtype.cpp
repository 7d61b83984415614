#include "regen/execute/program/dtype.h"

#include <array>
#include <string>
#include <utility>

namespace regen::execute {
namespace {

constexpr std::array<std::pair<std::string_view, c10::ScalarType>, 17> kTypes{{
    {"float32", c10::ScalarType::Float},
    {"float64", c10::ScalarType::Double},
    {"float16", c10::ScalarType::Half},
    {"bfloat16", c10::ScalarType::BFloat16},
    {"float8_e4m3fn", c10::ScalarType::Float8_e4m3fn},
    {"float8_e5m2", c10::ScalarType::Float8_e5m2},
    {"int8", c10::ScalarType::Char},
    {"int16", c10::ScalarType::Short},
    {"int32", c10::ScalarType::Int},
    {"int64", c10::ScalarType::Long},
    {"uint8", c10::ScalarType::Byte},
    {"uint16", c10::ScalarType::UInt16},
    {"uint32", c10::ScalarType::UInt32},
    {"uint64", c10::ScalarType::UInt64},
    {"bool", c10::ScalarType::Bool},
    {"complex64", c10::ScalarType::ComplexFloat},
    {"complex128", c10::ScalarType::ComplexDouble},
}};

}  // namespace

Result<c10::ScalarType> parse_dtype(std::string_view name) {
  for (const auto& [text, type] : kTypes) {
    if (name == text) return type;
  }
  return bad_input("\"" + std::string(name) + "\" found, expected an element type such as float32");
}

std::string_view dtype_name(c10::ScalarType type) {
  for (const auto& [text, known] : kTypes) {
    if (known == type) return text;
  }
  return "unknown";
}

}  // namespace regen::execute
