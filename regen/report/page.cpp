#include "regen/report/page.h"

#include "regen/report/page_template.h"

namespace regen::report {
namespace {

void replace_once(std::string& text, std::string_view what, std::string_view with) {
  const std::size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), with);
}

std::string for_attribute(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size() + text.size() / 4);
  for (const char c : text) {
    if (c == '&') {
      quoted += "&amp;";
    } else if (c == '"') {
      quoted += "&quot;";
    } else if (c == '<') {
      quoted += "&lt;";
    } else {
      quoted += c;
    }
  }
  return quoted;
}

}  // namespace

std::string script_text(const Json& document) {
  const std::string json = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text;
  text.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '<') {
      text += "\\u003c";
    } else if (json.compare(i, 2, "\xe2\x80") == 0 && i + 2 < json.size() &&
               (json[i + 2] == '\xa8' || json[i + 2] == '\xa9')) {
      text += json[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      text += json[i];
    }
  }
  return text;
}

std::string page(const Json& document) {
  std::string text = page_template();
  replace_once(text, "@REPORT@", script_text(document));
  return text;
}

std::string frame(const Json& document, int height) {
  return "<iframe title=\"regen report\" sandbox=\"allow-scripts\" style=\"width:100%;height:" +
         std::to_string(height) + "px;border:0\" srcdoc=\"" + for_attribute(page(document)) +
         "\"></iframe>";
}

}  // namespace regen::report
