#include "regen/search/local/stage_bytes.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace regen::search {
namespace {

// The bytes at positions beyond the last op: far below any sum.
constexpr Bytes kBytesBeyondLastOp = std::numeric_limits<Bytes>::min() / 4;

}  // namespace

StageBytes::StageBytes(std::span<const Bytes> bytes)
    : leaves_(std::bit_ceil(std::max<std::size_t>(bytes.size(), 1))),
      most_(2 * leaves_, kBytesBeyondLastOp),
      added_(2 * leaves_, 0) {
  std::ranges::copy(bytes, most_.begin() + static_cast<std::ptrdiff_t>(leaves_));
  for (std::size_t node = leaves_; node-- > 1;) {
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
  }
}

void StageBytes::add(std::size_t first, std::size_t last, Bytes bytes) {
  if (first < last) add(1, 0, leaves_, first, last, bytes);
}

Bytes StageBytes::most(std::size_t first, std::size_t last) const {
  return first < last ? most(1, 0, leaves_, first, last) : kBytesBeyondLastOp;
}

std::pair<Bytes, std::uint32_t> StageBytes::peak() const {
  std::size_t node = 1;
  while (node < leaves_) node = 2 * node + (most_[2 * node + 1] > most_[2 * node]);
  return {most_[1], static_cast<std::uint32_t>(node - leaves_)};
}

void StageBytes::add(std::size_t node, std::size_t low, std::size_t high, std::size_t first,
                     std::size_t last, Bytes bytes) {
  if (last <= low || high <= first) return;
  if (first <= low && high <= last) {
    most_[node] += bytes;
    added_[node] += bytes;
    return;
  }
  const std::size_t middle = (low + high) / 2;
  add(2 * node, low, middle, first, last, bytes);
  add(2 * node + 1, middle, high, first, last, bytes);
  most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
}

Bytes StageBytes::most(std::size_t node, std::size_t low, std::size_t high, std::size_t first,
                       std::size_t last) const {
  if (last <= low || high <= first) return kBytesBeyondLastOp;
  if (first <= low && high <= last) return most_[node];
  const std::size_t middle = (low + high) / 2;
  return added_[node] + std::max(most(2 * node, low, middle, first, last),
                                 most(2 * node + 1, middle, high, first, last));
}

}  // namespace regen::search
