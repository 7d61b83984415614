// Whether bytes are those that were written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace regen::share {

// Over a stream of bytes, at the speed of memory. Finds damage, not malice.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  static constexpr std::size_t kBlock = 32;
  void mix(const std::byte* block);

  std::uint64_t lanes_[4] = {1, 2, 3, 4};
  std::byte rest_[kBlock] = {};
  std::uint64_t total_ = 0;
};

}  // namespace regen::share
