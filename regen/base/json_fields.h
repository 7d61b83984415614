// What readers of small JSON files share: files that say their format, and no field that is not
// understood, since a misspelt one would silently change every plan.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "regen/base/json.h"

namespace regen {

// The "format" and "version" of the document must be these.
Status check_format(const JsonCursor& root, std::string_view format, int version);

// The value must be an object that has fields of these names only.
Status refuse_unknown_fields(const JsonCursor& object, std::initializer_list<const char*> known);

bool has_field(const JsonCursor& object, const char* key);

// Of an object. The cursor refers to `object` and `key`, so both must outlive it.
Result<JsonCursor> required_field(const JsonCursor& object, const char* key);
Status read_text(const JsonCursor& object, const char* key, std::string& value);
Status read_number(const JsonCursor& object, const char* key, double& value);

}  // namespace regen
