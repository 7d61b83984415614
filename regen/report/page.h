// A report as one HTML file: the page, which is made of the files in page/ when regen is built, with
// the JSON of the report inside. It needs no network and no other file.
#pragma once

#include <string>
#include <string_view>

#include "regen/base/json.h"

namespace regen::report {

// The document becomes text of a script element that no browser runs; nothing in it can end the
// element, whatever names a file brings.
std::string page(const Json& document);

// The same for an attribute: with it a notebook shows the page in a frame of its own.
std::string frame(const Json& document, int height);

// JSON that may stand in a script element: no <, no line separators of JavaScript.
std::string script_text(const Json& document);

}  // namespace regen::report
