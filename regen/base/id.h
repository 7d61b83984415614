// Strong 32-bit indices: an OpId cannot be used where a TensorId is expected.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace regen {

template <typename Tag>
class Id {
 public:
  using value_type = std::uint32_t;
  static constexpr value_type kNoneValue = std::numeric_limits<value_type>::max();

  constexpr Id() = default;
  constexpr explicit Id(std::size_t index) : index_(static_cast<value_type>(index)) {}

  // The absent id; also what a default-constructed Id holds.
  static constexpr Id none() { return Id(); }

  constexpr std::size_t index() const { return index_; }
  constexpr bool valid() const { return index_ != kNoneValue; }
  constexpr Id& operator++() {
    ++index_;
    return *this;
  }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  value_type index_ = kNoneValue;
};

// A vector indexed by one kind of id only.
template <typename I, typename T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t size, T value = T()) : items_(size, std::move(value)) {}

  decltype(auto) operator[](I id) { return items_[id.index()]; }
  decltype(auto) operator[](I id) const { return items_[id.index()]; }
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  void reserve(std::size_t n) { items_.reserve(n); }
  void resize(std::size_t n, T value = T()) { items_.resize(n, std::move(value)); }
  void assign(std::size_t n, T value) { items_.assign(n, std::move(value)); }
  I push_back(T value) {
    items_.push_back(std::move(value));
    return I(items_.size() - 1);
  }
  auto begin() { return items_.begin(); }
  auto begin() const { return items_.begin(); }
  auto end() { return items_.end(); }
  auto end() const { return items_.end(); }
  std::vector<T>& raw() { return items_; }
  const std::vector<T>& raw() const { return items_; }
  bool operator==(const IdVector&) const = default;

 private:
  std::vector<T> items_;
};

// Iterates over the ids [first, last): `for (OpId op : graph.ops())`.
template <typename I>
class IdRange {
 public:
  class iterator {
   public:
    using value_type = I;
    using difference_type = std::ptrdiff_t;
    iterator() = default;
    explicit iterator(std::size_t index) : index_(index) {}
    I operator*() const { return I(index_); }
    iterator& operator++() {
      ++index_;
      return *this;
    }
    iterator operator++(int) {
      iterator old = *this;
      ++index_;
      return old;
    }
    bool operator==(const iterator&) const = default;

   private:
    std::size_t index_ = 0;
  };

  IdRange(std::size_t first, std::size_t last) : first_(first), last_(last) {}
  explicit IdRange(std::size_t size) : IdRange(0, size) {}
  iterator begin() const { return iterator(first_); }
  iterator end() const { return iterator(last_); }
  std::size_t size() const { return last_ - first_; }
  I operator[](std::size_t i) const { return I(first_ + i); }

 private:
  std::size_t first_;
  std::size_t last_;
};

}  // namespace regen

template <typename Tag>
struct std::hash<regen::Id<Tag>> {
  std::size_t operator()(regen::Id<Tag> id) const noexcept { return id.index(); }
};
