#include "regen/base/json_fields.h"
#include "regen/base/text.h"

#include <algorithm>

namespace regen {

Status check_format(const JsonCursor& root, std::string_view format, int version) {
  REGEN_TRY(root.expect_object());
  std::string found;
  REGEN_TRY(read_text(root, "format", found));
  if (found != format) {
    return root.error("format: " + in_quotes(found) + " found, expected '" + std::string(format) +
                      "'");
  }
  REGEN_ASSIGN(const JsonCursor version_field, required_field(root, "version"));
  REGEN_TRY(version_field.whole(version, version));
  return {};
}

Status refuse_unknown_fields(const JsonCursor& object, std::initializer_list<const char*> known) {
  REGEN_TRY(object.expect_object());
  for (auto member = object.value().begin(); member != object.value().end(); ++member) {
    const std::string& key = member.key();
    const auto same = [&](const char* name) { return key == name; };
    if (std::any_of(known.begin(), known.end(), same)) continue;
    std::string names;
    for (const char* name : known) names += (names.empty() ? "" : ", ") + std::string(name);
    return object.unknown_field(key, names);
  }
  return {};
}

bool has_field(const JsonCursor& object, const char* key) {
  return object.value().contains(key);
}

Result<JsonCursor> required_field(const JsonCursor& object, const char* key) {
  const auto found = object.value().find(key);
  if (found == object.value().end()) return object.missing_field(key);
  return object.member(key, *found);
}

Status read_text(const JsonCursor& object, const char* key, std::string& value) {
  REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
  REGEN_ASSIGN(value, field.string());
  return {};
}

Status read_number(const JsonCursor& object, const char* key, double& value) {
  REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
  REGEN_ASSIGN(value, field.finite());
  return {};
}

}  // namespace regen
