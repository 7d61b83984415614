#include "regen/share/protocol/order.h"

namespace regen::share {
namespace {

constexpr unsigned kByteBits = 54;  // holds kMaxBytes
constexpr unsigned kDepthBits = 2;

}  // namespace

std::uint64_t ByteLimit::pack() const {
  const auto size = static_cast<std::uint64_t>(bytes);
  return size | static_cast<std::uint64_t>(park) << kByteBits |
         static_cast<std::uint64_t>(generation) << (kByteBits + kDepthBits);
}

ByteLimit ByteLimit::unpack(std::uint64_t word) {
  return {.bytes = static_cast<Bytes>(word & ((std::uint64_t{1} << kByteBits) - 1)),
          .generation = static_cast<std::uint32_t>(word >> (kByteBits + kDepthBits)),
          .park = static_cast<Depth>(word >> kByteBits & ((1u << kDepthBits) - 1))};
}

}  // namespace regen::share
