#include "regen/share/web/page_access.h"

#include <algorithm>
#include <array>
#include <string>

namespace regen::share {
namespace {

constexpr std::string_view kScheme = "bearer ";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool has_scheme(std::string_view authorization) {
  const std::string_view start = authorization.substr(0, kScheme.size());
  return std::equal(start.begin(), start.end(), kScheme.begin(), kScheme.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
}

// Given once, in the query or in the field.
bool brings(const HttpRequest& request, const PageToken& token) {
  if (request.tokens.size() + (request.authorization ? 1 : 0) != 1) return false;
  if (!request.authorization) return token.matches(request.tokens[0]);
  return has_scheme(*request.authorization) &&
         token.matches(std::string_view(*request.authorization).substr(kScheme.size()));
}

}  // namespace

bool names_this_machine(std::string_view host) {
  constexpr std::array<std::string_view, 3> kNames{"127.0.0.1", "localhost", "[::1]"};
  return std::any_of(kNames.begin(), kNames.end(), [host](std::string_view name) {
    if (!host.starts_with(name)) return false;
    const std::string_view rest = host.substr(name.size());
    if (rest.empty()) return true;
    return rest[0] == ':' && rest.size() >= 2 && rest.size() <= 6 &&
           std::all_of(rest.begin() + 1, rest.end(), is_digit);
  });
}

HttpStatus access_of(const HttpRequest& request, const PageToken& token) {
  if (!brings(request, token) || !names_this_machine(request.host)) return HttpStatus::kForbidden;
  if (request.method != "GET") return HttpStatus::kNotAllowed;
  return request.has_body ? HttpStatus::kBadRequest : HttpStatus::kOk;
}

}  // namespace regen::share
