#include "regen/share/web/page_token.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace regen::share {

Result<PageToken> PageToken::make() {
  std::array<unsigned char, 32> secret;
  // So few bytes come whole, or not at all.
  ssize_t count = -1;
  while ((count = ::getrandom(secret.data(), secret.size(), 0)) < 0 && errno == EINTR) {
  }
  if (count != ssize_t{secret.size()}) {
    return limit_reached("cannot make a token for the page: getrandom: " +
                         std::string(std::strerror(errno)));
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : secret) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return PageToken(std::move(text));
}

bool PageToken::matches(std::string_view text) const {
  if (text.size() != text_.size()) return false;  // its length is no secret
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < text_.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (text[i] ^ text_[i]));
  }
  return difference == 0;
}

}  // namespace regen::share
