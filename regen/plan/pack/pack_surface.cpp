#include "regen/plan/pack/pack_surface.h"

#include <algorithm>
#include <limits>

namespace regen {

PackSurface::PackSurface(std::int32_t sections)
    : sections_(sections), links_(static_cast<std::size_t>(sections)) {
  link(0).last = sections;
  by_height_.emplace(0, 0);
}

PackSurface::Stretch PackSurface::lowest() const {
  const auto [height, first] = *by_height_.begin();
  return {.first = first, .last = link(first).last, .height = height};
}

void PackSurface::cover(std::int32_t first, std::int32_t last, std::int64_t height) {
  const Stretch stretch = lowest();
  if (first > stretch.first) split(stretch.first, first);
  if (last < stretch.last) split(first, last);
  raise(first, height);
}

void PackSurface::lift() {
  const std::int32_t first = lowest().first;
  std::int64_t height = std::numeric_limits<std::int64_t>::max();
  for (const std::int32_t neighbour : {link(first).before, link(first).last}) {
    if (exists(neighbour)) height = std::min(height, link(neighbour).height);
  }
  raise(first, height);
}

void PackSurface::split(std::int32_t first, std::int32_t middle) {
  Link& left = link(first);
  link(middle) = {.before = first, .last = left.last, .height = left.height};
  if (exists(left.last)) link(left.last).before = middle;
  left.last = middle;
  by_height_.emplace(left.height, middle);
}

void PackSurface::raise(std::int32_t first, std::int64_t height) {
  by_height_.erase({link(first).height, first});
  link(first).height = height;
  by_height_.emplace(height, first);
  if (exists(link(first).last) && link(link(first).last).height == height) join(first);
  const std::int32_t before = link(first).before;
  if (exists(before) && link(before).height == height) join(before);
}

// Takes the next stretch, of the same height, into this one.
void PackSurface::join(std::int32_t first) {
  Link& left = link(first);
  by_height_.erase({left.height, left.last});
  left.last = link(left.last).last;
  if (exists(left.last)) link(left.last).before = first;
}

}  // namespace regen
