// One way to write a number of device bytes in every option: 8GiB, 16e9, 50% (of what keeping
// everything takes), or device (its memory).
#pragma once

#include <optional>
#include <string_view>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/cost/device.h"
#include "regen/graph/graph.h"

namespace regen::cli {

class ByteAmount {
 public:
  static Result<ByteAmount> parse(std::string_view text);

  // `device` may be null; then "device" is refused.
  Result<Bytes> resolve(const Graph& graph, const Device* device) const;

 private:
  enum class Kind : std::uint8_t { kBytes, kFraction, kDevice };

  Kind kind_ = Kind::kBytes;
  Bytes bytes_ = 0;
  double fraction_ = 0;
};

}  // namespace regen::cli
