#include "cli/options/byte_amount.h"

#include <string>

#include "regen/graph/analysis.h"

namespace regen::cli {
namespace {

constexpr double kMostPercent = 1000;

}  // namespace

Result<ByteAmount> ByteAmount::parse(std::string_view text) {
  ByteAmount amount;
  if (text == "device") {
    amount.kind_ = Kind::kDevice;
    return amount;
  }
  if (!text.ends_with('%')) {
    REGEN_ASSIGN(amount.bytes_, parse_bytes(text));
    return amount;
  }
  const auto percent = parse_double(text.substr(0, text.size() - 1));
  if (!percent.ok() || !(*percent >= 0 && *percent <= kMostPercent)) {
    return bad_input("bad fraction '" + std::string(text.substr(0, 60)) +
                     "', expected such as 50%, of what keeping everything takes");
  }
  amount.kind_ = Kind::kFraction;
  amount.fraction_ = *percent / 100;
  return amount;
}

Result<Bytes> ByteAmount::resolve(const Graph& graph, const Device* device) const {
  if (kind_ == Kind::kBytes) return bytes_;
  if (kind_ == Kind::kFraction) {
    const auto whole = static_cast<double>(live_bytes_keep_all(graph).peak_bytes);
    return static_cast<Bytes>(fraction_ * whole);
  }
  if (device != nullptr) return device->memory_bytes;
  return bad_input("'device' without a device, expected --device NAME as well");
}

}  // namespace regen::cli
