# Makes one C++ source of a page: page.html with the style of all pages and its own style.css, and the scripts that
# scripts.txt lists, in that order; those that begin with base/html/ are for all pages.
#
#   cmake -DREGEN=regen -DROOM=report -DOUTPUT=page_template.cpp -P cmake/page.cmake
#
# The page allows itself this one style and this one script, by their hashes, and nothing else: a name in a file that
# became markup after all would still not run.
function(base64_of result hex)
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  set(text "")
  # 32 bytes: ten groups of three, then two with one sign of padding.
  string(APPEND hex "00")
  foreach(begin RANGE 0 60 6)
    string(SUBSTRING "${hex}" ${begin} 6 group)
    math(EXPR number "0x${group}")
    foreach(shift 18 12 6 0)
      math(EXPR place "(${number} >> ${shift}) & 63")
      string(SUBSTRING "${alphabet}" ${place} 1 letter)
      string(APPEND text "${letter}")
    endforeach()
  endforeach()
  string(SUBSTRING "${text}" 0 43 text)
  set(${result} "${text}=" PARENT_SCOPE)
endfunction()

set(folder "${REGEN}/${ROOM}/page")
file(READ "${folder}/page.html" page)
file(READ "${REGEN}/base/html/base.css" style)
file(READ "${folder}/style.css" own_style)
string(APPEND style "${own_style}")
file(STRINGS "${folder}/scripts.txt" names REGEX "^(base/html/)?[a-z_]+\\.js$")
set(script "(() => {\n\"use strict\";\n")
foreach(name ${names})
  if(name MATCHES "^base/")
    file(READ "${REGEN}/${name}" part)
  else()
    file(READ "${folder}/${name}" part)
  endif()
  string(APPEND script "${part}")
endforeach()
string(APPEND script "})();\n")

string(SHA256 style_hash "${style}")
string(SHA256 script_hash "${script}")
base64_of(style_hash "${style_hash}")
base64_of(script_hash "${script_hash}")
string(REPLACE "@STYLE_HASH@" "sha256-${style_hash}" page "${page}")
string(REPLACE "@SCRIPT_HASH@" "sha256-${script_hash}" page "${page}")
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")

# One literal for each line: compilers limit the length of a literal.
string(REPLACE "\\" "\\\\" page "${page}")
string(REPLACE "\"" "\\\"" page "${page}")
string(REPLACE "??" "?\\?" page "${page}")  # else the beginning of a trigraph
string(REPLACE "\n" "\\n\",\n    \"" page "${page}")
file(WRITE "${OUTPUT}" "#include \"regen/${ROOM}/page_template.h\"

#include <string_view>

namespace regen::${ROOM} {
namespace {

constexpr std::string_view kLines[] = {
    \"${page}\"};

}  // namespace

std::string page_template() {
  std::string text;
  for (const std::string_view line : kLines) text += line;
  return text;
}

}  // namespace regen::${ROOM}
")
