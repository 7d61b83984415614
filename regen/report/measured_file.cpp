#include "regen/report/measured_file.h"

#include "regen/base/json_fields.h"

namespace regen::report {
namespace {

// The value of a field that may be absent or null.
const Json* value_of(const JsonCursor& object, const char* key) {
  if (!has_field(object, key)) return nullptr;
  const Json& value = object.value()[key];
  return value.is_null() ? nullptr : &value;
}

}  // namespace

Result<Measured> read_measured(std::string_view text, std::string_view source) {
  REGEN_ASSIGN(const Json document, parse_json(text, source));
  const JsonCursor root(document, source);
  REGEN_TRY(root.expect_object());
  Measured measured;
  if (const Json* bytes = value_of(root, "measured_peak_bytes")) {
    REGEN_ASSIGN(measured.peak_bytes,
                 root.member("measured_peak_bytes", *bytes).whole(0, kMaxBytes));
  }
  if (const Json* seconds = value_of(root, "measured_seconds")) {
    REGEN_ASSIGN(measured.seconds, root.member("measured_seconds", *seconds).not_negative());
  }
  if (!measured.peak_bytes && !measured.seconds) {
    return root.error(
        "no measured_peak_bytes and no measured_seconds, expected what regen run --json prints");
  }
  return measured;
}

}  // namespace regen::report
