#include "regen/share/protocol/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace regen::share {
namespace {

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace

void Checksum::mix(const std::byte* block) {
  for (int lane = 0; lane < 4; ++lane) {
    lanes_[lane] = std::rotl(lanes_[lane] ^ word_at(block + 8 * lane), 29) * 0x9e3779b97f4a7c15u;
  }
}

void Checksum::add(std::span<const std::byte> bytes) {
  std::size_t held = total_ % kBlock;
  total_ += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(bytes.size(), kBlock - held);
    std::memcpy(rest_ + held, bytes.data(), taken);
    bytes = bytes.subspan(taken);
    held += taken;
    if (held < kBlock) return;
    mix(rest_);
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) mix(bytes.data());
  if (!bytes.empty()) std::memcpy(rest_, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const {
  Checksum last = *this;
  const std::size_t held = total_ % kBlock;
  if (held > 0) {
    std::memset(last.rest_ + held, 0, kBlock - held);
    last.mix(last.rest_);
  }
  std::uint64_t sum = total_;
  for (const std::uint64_t lane : last.lanes_) {
    sum = (std::rotl(sum, 31) ^ lane) * 0xbf58476d1ce4e5b9u;
    sum ^= sum >> 32;
  }
  return sum;
}

}  // namespace regen::share
