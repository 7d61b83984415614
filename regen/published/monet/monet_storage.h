// Which forward tensors MONeT's model stores at the start of each stage: the S of the paper, as
// rows of bits.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace regen::published {

using MonetRow = std::span<const std::uint64_t>;

inline bool has_bit(MonetRow row, std::size_t i) {
  return (row[i / 64] >> (i % 64) & 1) != 0;
}
inline void set_bit(std::span<std::uint64_t> row, std::size_t i, bool value = true) {
  const std::uint64_t bit = std::uint64_t{1} << (i % 64);
  row[i / 64] = value ? row[i / 64] | bit : row[i / 64] & ~bit;
}

// Calls body(i) for each set bit, ascending.
template <typename Body>
void for_each_bit(MonetRow row, Body body) {
  for (std::size_t w = 0; w < row.size(); ++w) {
    for (std::uint64_t rest = row[w]; rest != 0; rest &= rest - 1) {
      body(w * 64 + static_cast<std::size_t>(std::countr_zero(rest)));
    }
  }
}

// Rows 0 to the number of stages; row 0 is empty, since nothing is stored before the step.
class MonetStorage {
 public:
  MonetStorage(std::size_t stages, std::size_t nodes)
      : words_((nodes + 63) / 64), bits_((stages + 1) * words_) {}

  std::size_t words() const { return words_; }
  MonetRow row(std::size_t t) const { return {bits_.data() + t * words_, words_}; }
  std::span<std::uint64_t> row(std::size_t t) { return {bits_.data() + t * words_, words_}; }
  bool stored(std::size_t t, std::size_t i) const { return has_bit(row(t), i); }
  void store(std::size_t t, std::size_t i, bool value) { set_bit(row(t), i, value); }

  bool operator==(const MonetStorage&) const = default;

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace regen::published
