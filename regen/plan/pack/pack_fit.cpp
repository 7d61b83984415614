#include "regen/plan/pack/pack_fit.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "regen/plan/pack/pack_surface.h"
#include "regen/plan/pack/pack_tree.h"

namespace regen {
namespace {

using Keys = std::vector<double>;

// The highest load met by each item during its life.
Keys peak_loads(const PackPart& part) {
  std::vector<std::vector<std::int64_t>> highest{section_loads(part)};  // of 2^level sections
  for (std::size_t span = 1; 2 * span <= highest[0].size(); span *= 2) {
    const auto& half = highest.back();
    std::vector<std::int64_t> level(half.size() - span);
    for (std::size_t s = 0; s < level.size(); ++s) level[s] = std::max(half[s], half[s + span]);
    highest.push_back(std::move(level));
  }
  Keys peaks;
  for (const PackItem& item : part.items) {
    const auto length = static_cast<std::uint32_t>(item.length());
    const auto level = static_cast<std::size_t>(std::bit_width(length) - 1);
    const auto tail = static_cast<std::size_t>(item.last) - (std::size_t{1} << level);
    const auto& over = highest[level];
    peaks.push_back(
        static_cast<double>(std::max(over[static_cast<std::size_t>(item.first)], over[tail])));
  }
  return peaks;
}

// The position of each key from the least wanted.
Keys ranks(const Keys& keys) {
  std::vector<std::uint32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](auto a, auto b) { return keys[a] < keys[b]; });
  Keys ranks(keys.size());
  for (std::size_t r = 0; r < order.size(); ++r) ranks[order[r]] = static_cast<double>(r);
  return ranks;
}

class Greedy {
 public:
  Greedy(const PackPart& part, std::int64_t target, Effort& effort)
      : part_(part), target_(target), effort_(effort), tree_(part.items) {}

  Fit run(bool improve) {
    for (int preference = 0; preference < kPreferences; ++preference) {
      if (attempt(preference_keys(preference))) return std::move(best_);
    }
    for (int round = 0; improve && round < kRounds; ++round) {
      if (attempt(corrected_keys())) break;
    }
    return std::move(best_);
  }

 private:
  static constexpr int kPreferences = 6;
  static constexpr int kRounds = 24;

  Keys preference_keys(int preference) const {
    const Keys peaks = preference == 1 ? peak_loads(part_) : Keys();
    const auto sections = static_cast<double>(part_.sections);
    Keys keys;
    for (std::size_t i = 0; i < part_.items.size(); ++i) {
      const PackItem& item = part_.items[i];
      const auto size = static_cast<double>(item.size);
      const auto length = static_cast<double>(item.length());
      switch (preference) {
        case 0:
          keys.push_back(length);
          break;
        case 1:
          keys.push_back(peaks[i] + length / (sections + 1));
          break;
        case 2:
          keys.push_back(size * length);
          break;
        case 3:
          keys.push_back(item.last + length / (sections + 1));
          break;
        case 4:
          keys.push_back(-item.first + length / (sections + 1));
          break;
        default:
          keys.push_back(size);
      }
    }
    return keys;
  }

  // Whether there is nothing more to do.
  bool attempt(const Keys& keys) {
    latest_ = pack_once(keys);
    if (best_.offsets.empty() || latest_.height < best_.height) {
      best_ = latest_;
      best_keys_ = keys;
    }
    return best_.height <= target_ || effort_.exhausted();
  }

  // What stuck out last time is wanted more than before, by a tenth of all ranks.
  Keys corrected_keys() {
    if (urgency_.empty()) urgency_ = ranks(best_keys_);
    const double more = static_cast<double>(urgency_.size()) / 10;
    for (std::size_t i = 0; i < urgency_.size(); ++i) {
      if (latest_.offsets[i] + part_.items[i].size > target_) urgency_[i] += more;
    }
    return urgency_;
  }

  Fit pack_once(const Keys& keys) {
    const std::int64_t visits = tree_.visits();
    tree_.reset(keys);
    PackSurface surface(part_.sections);
    Fit fit{.offsets = std::vector<std::int64_t>(part_.items.size())};
    for (std::size_t open = part_.items.size(); open > 0;) {
      const PackSurface::Stretch stretch = surface.lowest();
      const std::uint32_t i = tree_.best_within(stretch.first, stretch.last);
      if (i == PackTree::kNone) {
        surface.lift();
        continue;
      }
      const PackItem& item = part_.items[i];
      fit.offsets[i] = stretch.height;
      fit.height = std::max(fit.height, stretch.height + item.size);
      surface.cover(item.first, item.last, stretch.height + item.size);
      tree_.remove(i);
      --open;
    }
    constexpr std::int64_t kVisitsPerWork = 24;
    effort_.add((tree_.visits() - visits) / kVisitsPerWork + 1);
    return fit;
  }

  const PackPart& part_;
  std::int64_t target_;
  Effort& effort_;
  PackTree tree_;
  Fit best_;
  Keys best_keys_;
  Fit latest_;
  Keys urgency_;  // keys of the corrections
};

}  // namespace

Fit make_fit(const PackPart& part, std::vector<std::int64_t> offsets) {
  Fit fit{.offsets = std::move(offsets)};
  for (std::size_t i = 0; i < part.items.size(); ++i) {
    fit.height = std::max(fit.height, fit.offsets[i] + part.items[i].size);
  }
  return fit;
}

Fit greedy_fit(const PackPart& part, std::int64_t target, bool improve, Effort& effort) {
  return Greedy(part, target, effort).run(improve);
}

}  // namespace regen
