// The head of a request for the daemon's page, in parts as the network brings them: the same however it is cut, within
// its limits, and never answered without the token.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "regen/share/web/http_request.h"
#include "regen/share/web/page_access.h"

namespace {

using regen::share::HttpReader;
using regen::share::HttpStatus;

void must(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t part = data[0] % 17 + 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  HttpReader whole, parts;
  const bool done = whole.append(bytes);
  bool done_too = false;
  for (std::size_t at = 0; at < bytes.size() && !done_too; at += part) {
    done_too = parts.append(bytes.substr(at, part));
  }
  must(done == (bytes.empty() ? done : done_too), "how it is cut decides whether it is whole");
  must(done || bytes.size() <= HttpReader::kMostHead, "more than the limit is waited for");
  if (!done) return 0;
  must(whole.status() == parts.status(), "how it is cut decides what it means");
  if (whole.status() != HttpStatus::kOk) return 0;
  static const regen::share::PageToken token = regen::share::PageToken::make().value();
  must(regen::share::access_of(whole.request(), token) == HttpStatus::kForbidden,
       "answered without the token");
  must(whole.request().path.size() <= HttpReader::kMostTarget, "a path beyond the limit");
  must(whole.request().path.find_first_of(" \r\n") == std::string::npos,
       "a path with ends of lines");
  return 0;
}
