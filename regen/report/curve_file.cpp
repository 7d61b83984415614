#include "regen/report/curve_file.h"

#include <algorithm>

#include "regen/base/json_fields.h"

namespace regen::report {
namespace {

Result<std::optional<double>> read_optional(const JsonCursor& row, const char* key) {
  if (!has_field(row, key)) return std::optional<double>();
  REGEN_ASSIGN(const JsonCursor field, required_field(row, key));
  if (field.value().is_null()) return std::optional<double>();
  REGEN_ASSIGN(const double value, field.not_negative());
  return std::optional<double>(value);
}

Result<CurvePoint> read_point(const JsonCursor& row) {
  REGEN_TRY(row.expect_object());
  CurvePoint point;
  REGEN_ASSIGN(const JsonCursor bytes, required_field(row, "budget_bytes"));
  REGEN_ASSIGN(point.bytes, bytes.whole(0, kMaxBytes));
  REGEN_ASSIGN(point.cost, read_optional(row, "cost"));
  REGEN_ASSIGN(point.lower_bound, read_optional(row, "lower_bound"));
  return point;
}

}  // namespace

Result<std::vector<CurvePoint>> read_curve(std::string_view text, std::string_view source) {
  REGEN_ASSIGN(const Json document, parse_json(text, source));
  const JsonCursor root(document, source);
  REGEN_ASSIGN(const std::size_t count, root.array_size());
  std::vector<CurvePoint> points;
  for (std::size_t i = 0; i < count; ++i) {
    REGEN_ASSIGN(const CurvePoint point, read_point(root.item(i)));
    points.push_back(point);
  }
  std::ranges::stable_sort(points, {}, &CurvePoint::bytes);
  return points;
}

}  // namespace regen::report
