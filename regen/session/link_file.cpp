#include "regen/session/link_file.h"

#include <optional>

#include "regen/base/json.h"
#include "regen/base/text.h"

namespace regen::session {
namespace {

// Bytes per second of any link; others lead to times that are no times.
constexpr double kLeastRate = 1;
constexpr double kMostRate = 1e18;

std::optional<Link> read_link(const Json& value) {
  if (!value.is_array() || value.size() != 3) return std::nullopt;
  double rate[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (!value[i].is_number_float()) return std::nullopt;
    rate[i] = value[i].get<double>();
    if (!(rate[i] >= kLeastRate && rate[i] <= kMostRate)) return std::nullopt;
  }
  return Link{rate[0], rate[1], rate[2]};
}

}  // namespace

Links read_links(std::string_view text, std::string_view source,
                 const std::function<void(std::string_view)>& on_problem) {
  Links links;
  const auto document = parse_json(text, source);
  if (!document.ok()) {
    on_problem(document.error().message);
    return links;
  }
  const std::string where = std::string(source) + ": ";
  if (!document->is_object()) {
    on_problem(where + excerpt(*document) + " found, expected an object");
    return links;
  }
  for (const auto& [name, value] : document->items()) {
    if (const auto link = read_link(value)) {
      links.emplace(name, *link);
    } else {
      on_problem(where + in_quotes(name) + ": expected three rates in bytes per second");
    }
  }
  return links;
}

std::string write_links(const Links& links) {
  Json document = Json::object();
  for (const auto& [name, link] : links) {
    document[name] = Json::array({link.to_host, link.to_device, link.both});
  }
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace regen::session
