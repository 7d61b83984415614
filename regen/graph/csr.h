// Lists of values for each key, stored as one array: the rows of a sparse matrix.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace regen {

template <typename Key, typename Value>
class Csr {
 public:
  std::span<const Value> operator[](Key key) const {
    return {items_.data() + starts_[key.index()], items_.data() + starts_[key.index() + 1]};
  }
  std::size_t num_rows() const { return starts_.size() - 1; }
  std::size_t num_items() const { return items_.size(); }

  void append_row(std::span<const Value> row) {
    items_.insert(items_.end(), row.begin(), row.end());
    starts_.push_back(static_cast<std::uint32_t>(items_.size()));
  }

  // Groups (key, value) pairs by key, keeping the order of pairs inside a row.
  static Csr from_pairs(std::size_t num_rows, std::span<const std::pair<Key, Value>> pairs) {
    Csr csr;
    csr.starts_.assign(num_rows + 1, 0);
    for (const auto& [key, value] : pairs) ++csr.starts_[key.index() + 1];
    for (std::size_t i = 0; i < num_rows; ++i) csr.starts_[i + 1] += csr.starts_[i];
    csr.items_.resize(pairs.size());
    std::vector<std::uint32_t> next(csr.starts_.begin(), csr.starts_.end() - 1);
    for (const auto& [key, value] : pairs) csr.items_[next[key.index()]++] = value;
    return csr;
  }

  bool operator==(const Csr&) const = default;

 private:
  std::vector<std::uint32_t> starts_{0};
  std::vector<Value> items_;
};

}  // namespace regen
