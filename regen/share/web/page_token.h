// The secret that every request for the page must bring: random, made anew by each daemon.
#pragma once

#include <string>
#include <string_view>

#include "regen/base/result.h"

namespace regen::share {

class PageToken {
 public:
  // 256 bits from the kernel. An error when it gives none: nothing weaker takes their place.
  static Result<PageToken> make();

  // 64 hexadecimal digits.
  const std::string& text() const { return text_; }
  // In the same time wherever the first difference is.
  bool matches(std::string_view text) const;

 private:
  explicit PageToken(std::string text) : text_(std::move(text)) {}

  std::string text_;
};

}  // namespace regen::share
