#include "regen/plan/pack_fit.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "regen/plan/pack_skyline.h"

namespace regen {
namespace {

using Order = std::vector<std::uint32_t>;
using Key = std::function<double(const PackItem&)>;

// Larger keys first; equal ones by a second key, then as given.
Order order_by(const PackPart& part, const Key& key, const Key& second) {
  Order order(part.items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::vector<std::pair<double, double>> keys;
  for (const PackItem& item : part.items) keys.emplace_back(key(item), second(item));
  std::ranges::stable_sort(order, [&](auto a, auto b) { return keys[a] > keys[b]; });
  return order;
}

std::vector<Order> orders(const PackPart& part) {
  const auto length = [](const PackItem& item) { return double(item.length()); };
  const auto size = [](const PackItem& item) { return double(item.size); };
  const auto area = [](const PackItem& item) { return double(item.length()) * double(item.size); };
  const auto earlier = [](const PackItem& item) { return -double(item.first); };
  const auto later = [](const PackItem& item) { return double(item.last); };
  return {order_by(part, length, size), order_by(part, area, size), order_by(part, size, length),
          order_by(part, earlier, length), order_by(part, later, length)};
}

Fit drop(const PackPart& part, const Order& order, Skyline& skyline) {
  skyline.clear();
  Fit fit{.offsets = std::vector<std::int64_t>(part.items.size())};
  for (const auto index : order) {
    const PackItem& item = part.items[index];
    const std::int64_t offset = skyline.highest(item.first, item.last);
    fit.offsets[index] = offset;
    skyline.raise(item.first, item.last, offset + item.size);
    fit.height = std::max(fit.height, offset + item.size);
  }
  return fit;
}

}  // namespace

Fit make_fit(const PackPart& part, std::vector<std::int64_t> offsets) {
  Fit fit{.offsets = std::move(offsets)};
  for (std::size_t i = 0; i < part.items.size(); ++i) {
    fit.height = std::max(fit.height, fit.offsets[i] + part.items[i].size);
  }
  return fit;
}

Fit greedy_fit(const PackPart& part, std::int64_t target, bool /*improve*/, Effort& effort) {
  Skyline skyline(part.sections);
  Fit best;
  for (const Order& order : orders(part)) {
    Fit fit = drop(part, order, skyline);
    effort.add(static_cast<std::int64_t>(part.items.size()) / 10 + 1);
    if (best.offsets.empty() || fit.height < best.height) best = std::move(fit);
    if (best.height <= target || effort.exhausted()) break;
  }
  return best;
}

}  // namespace regen
