// The newest values of something, at most a fixed number.
#pragma once

#include <cstddef>
#include <vector>

namespace regen::share {

template <typename Point, std::size_t kMost>
class Series {
 public:
  static constexpr std::size_t kBytes = kMost * sizeof(Point);

  void add(const Point& point) {
    if (points_.empty()) points_.reserve(kMost);
    if (points_.size() < kMost) {
      points_.push_back(point);
    } else {
      points_[oldest_] = point;
      oldest_ = (oldest_ + 1) % kMost;
    }
  }
  std::size_t size() const { return points_.size(); }
  // 0: the oldest.
  const Point& operator[](std::size_t place) const { return points_[(oldest_ + place) % kMost]; }

 private:
  std::vector<Point> points_;
  std::size_t oldest_ = 0;
};

}  // namespace regen::share
