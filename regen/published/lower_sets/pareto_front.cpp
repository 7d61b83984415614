#include "regen/published/lower_sets/pareto_front.h"

#include <algorithm>

namespace regen::published {

void ParetoBuilder::take(std::vector<ParetoLabel>& out, bool leanest_only) {
  const std::size_t first = out.size();
  // From the highest value down, a state stays if it needs fewer bytes than all before it.
  Bytes least = std::numeric_limits<Bytes>::max();
  const auto offer = [&](double value, Bytes bytes, std::uint32_t parent) {
    if (bytes >= least) return;
    least = bytes;
    if (leanest_only) out.resize(first);
    out.push_back({value, bytes, parent});
  };
  for (std::size_t place = high_; place-- > low_ && high_ > 0;) {
    offer(static_cast<double>(place), table_[place].bytes, table_[place].parent);
    table_[place] = {};
  }
  std::ranges::sort(loose_, [](const ParetoLabel& a, const ParetoLabel& b) {
    if (a.value != b.value) return a.value > b.value;
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.parent < b.parent;
  });
  for (const ParetoLabel& label : loose_) offer(label.value, label.bytes, label.parent);
  loose_.clear();
  low_ = SIZE_MAX;
  high_ = 0;
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
}

}  // namespace regen::published
