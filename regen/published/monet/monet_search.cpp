#include "regen/published/monet/monet_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace regen::published {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kNoise = 1e-6;  // ticks: below this two values are equal
// Groups that find nothing in a row: then a descent ends.
constexpr int kPatience = 150;
// Shakes without a better schedule in a row: then the search ends by itself.
constexpr int kFruitlessShakes = 400;

}  // namespace

MonetSearch::MonetSearch(const MonetModel& model, std::uint64_t seed)
    : model_(model),
      rater_(model),
      random_(seed),
      current_{MonetStorage(model.num_stages(), model.num_nodes())},
      neighbours_(model.num_nodes()),
      least_after_(model.num_stages() + 1) {
  for (std::size_t t = model.num_stages(); t-- > 0;) {
    least_after_[t] = least_after_[t + 1] + model.stages[t].least_ticks;
  }
  Ticks total = least_after_[0];
  for (const MonetForward& node : model.nodes) total += node.first_ticks;
  price_ = static_cast<double>(total + 1) / static_cast<double>(std::max<Kib>(model.budget, 1));
  for (std::uint32_t i = 0; i < model.num_nodes(); ++i) {
    for (std::uint32_t input : model.nodes[i].inputs) {
      neighbours_[i].push_back(input);
      neighbours_[input].push_back(i);
    }
  }
  offer(keep_everything(true));
  const MonetSchedule everything = current_;
  offer(keep_everything(false));
  if (value(everything) < value(current_)) offer(everything.storage);
}

// Every tensor until no later stage can use it.
MonetStorage MonetSearch::keep_everything(bool with_by_products) const {
  MonetStorage storage(model_.num_stages(), model_.num_nodes());
  for (std::size_t i = 0; i < model_.num_nodes(); ++i) {
    if (model_.nodes[i].parent && !with_by_products) continue;
    for (std::size_t t = 1; t <= model_.last_use[i] + 1; ++t) storage.store(t, i, true);
  }
  return storage;
}

MonetSchedule MonetSearch::rated(MonetStorage storage) {
  MonetSchedule schedule{std::move(storage)};
  ratings_.resize(model_.num_stages());
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    ratings_[t] = rater_.rate(t, std::as_const(schedule.storage).row(t),
                              std::as_const(schedule.storage).row(t + 1), price_);
    schedule.ticks += ratings_[t].ticks;
    schedule.excess += ratings_[t].excess;
  }
  return schedule;
}

double MonetSearch::value(const MonetSchedule& schedule) const {
  return static_cast<double>(schedule.ticks) + price_ * static_cast<double>(schedule.excess);
}

void MonetSearch::offer(const MonetStorage& storage) {
  current_ = rated(storage);
  if (current_.excess == 0 && (!best_ || current_.ticks < best_->ticks)) best_ = current_;
}

std::uint32_t MonetSearch::draw_near(std::uint32_t node) {
  const auto& near = neighbours_[node];
  if (near.empty() || random_.chance(0.15)) {
    return static_cast<std::uint32_t>(
        random_.between(0, static_cast<std::int64_t>(model_.num_nodes()) - 1));
  }
  return near[static_cast<std::size_t>(
      random_.between(0, static_cast<std::int64_t>(near.size()) - 1))];
}

// A node, or a run of nodes that ends with it.
MonetSearch::Piece MonetSearch::draw_piece(std::uint32_t node) {
  Piece piece{node};
  if (random_.chance(0.7)) return piece;
  const auto length = static_cast<std::uint32_t>(random_.between(1, 7));
  for (std::uint32_t i = node; i-- > 0 && node - i <= length;) {
    if (!model_.nodes[i].parent && !random_.chance(0.2)) piece.push_back(i);
  }
  return piece;
}

// Mostly a connected part of the graph, sometimes with strangers in it.
MonetSearch::Group MonetSearch::draw_group() {
  const auto size =
      static_cast<std::size_t>(random_.chance(0.3) ? random_.between(4, 5) : random_.between(1, 3));
  Group group;
  auto node = static_cast<std::uint32_t>(
      random_.between(0, static_cast<std::int64_t>(model_.num_nodes()) - 1));
  std::vector<char> taken(model_.num_nodes());
  for (int tries = 0; group.size() < size && tries < 20; ++tries) {
    Piece piece = draw_piece(node);
    std::erase_if(piece, [&](std::uint32_t i) { return taken[i] != 0; });
    for (std::uint32_t i : piece) taken[i] = 1;
    if (!piece.empty()) group.push_back(std::move(piece));
    node = draw_near(node);
  }
  return group;
}

// The states of a group at one boundary between stages.
struct MonetSearch::Path {
  std::vector<double> value;          // of the best way here, by state
  std::vector<std::uint64_t> rows;    // the whole storage row, by state
  std::vector<Kib> ram;               // of the row, by state
  std::vector<std::uint32_t> states;  // those allowed
};

bool MonetSearch::improve(const Group& group, Effort& effort) {
  const std::size_t count = std::size_t{1} << group.size();
  const std::size_t words = current_.storage.words();
  std::size_t end = 0;  // the last boundary at which the group may be stored
  std::vector<std::uint32_t> last(group.size());
  for (std::size_t g = 0; g < group.size(); ++g) {
    for (std::uint32_t i : group[g]) last[g] = std::max(last[g], model_.last_use[i] + 1);
    end = std::max<std::size_t>(end, last[g]);
  }
  end = std::min(end, model_.num_stages());
  const std::size_t stages = std::min(end + 1, model_.num_stages());
  double old_value = 0;
  for (std::size_t t = 0; t < stages; ++t) old_value += ratings_[t].value(price_);
  const double limit = old_value + kNoise;

  const auto set_group = [&](std::span<std::uint64_t> row, std::size_t t, std::uint32_t state) {
    for (std::size_t g = 0; g < group.size(); ++g) {
      for (std::uint32_t i : group[g]) {
        set_bit(row, i, (state >> g & 1) != 0 && t <= model_.last_use[i] + 1);
      }
    }
  };
  const auto set_up = [&](std::size_t t, Path& path) {
    path.states.clear();
    path.rows.resize(count * words);
    path.ram.resize(count);
    std::uint32_t allowed = 0;
    for (std::size_t g = 0; g < group.size(); ++g) {
      if (t >= 1 && t <= last[g]) allowed |= 1U << g;
    }
    for (std::uint32_t state = 0; state < count; ++state) {
      if ((state & ~allowed) != 0) continue;
      path.states.push_back(state);
      const std::span<std::uint64_t> row(path.rows.data() + state * words, words);
      const MonetRow from = std::as_const(current_.storage).row(t);
      std::copy(from.begin(), from.end(), row.begin());
      set_group(row, t, state);
      path.ram[state] = rater_.ram(row);
    }
    path.value.assign(count, kNever);
  };

  Path here, next;
  std::vector<std::uint32_t> origin((stages + 1) * count);
  set_up(0, here);
  here.value[0] = 0;
  for (std::size_t t = 0; t < stages; ++t) {
    set_up(t + 1, next);
    std::int64_t ratings = 0;
    for (std::uint32_t from : here.states) {
      // What stages cost at least is enough to drop most ways that recompute a lot.
      if (here.value[from] + static_cast<double>(least_after_[t] - least_after_[stages]) > limit) {
        continue;
      }
      const MonetRow before(here.rows.data() + from * words, words);
      for (std::uint32_t to : next.states) {
        const MonetRow after(next.rows.data() + to * words, words);
        const double total =
            here.value[from] + rater_.rate(t, before, here.ram[from], after, price_).value(price_);
        ++ratings;
        const bool tie = std::abs(total - next.value[to]) <= kNoise && random_.chance(0.5);
        if (total < next.value[to] - kNoise || tie) {
          next.value[to] = total;
          origin[(t + 1) * count + to] = from;
        }
      }
    }
    effort.add(ratings);
    std::swap(here, next);
    if (effort.exhausted()) return false;
  }
  const double new_value = *std::min_element(here.value.begin(), here.value.end());
  if (new_value > limit) return false;
  auto state = static_cast<std::uint32_t>(std::min_element(here.value.begin(), here.value.end()) -
                                          here.value.begin());
  for (std::size_t t = stages; t > 0; --t) {
    set_group(current_.storage.row(t), t, state);
    state = origin[t * count + state];
  }
  current_ = rated(std::move(current_.storage));
  return new_value < old_value - kNoise;
}

bool MonetSearch::descend(int patience, Effort& effort) {
  bool better = false;
  for (int failures = 0; failures < patience && !effort.exhausted(); ++failures) {
    if (!improve(draw_group(), effort)) continue;
    failures = 0;
    if (current_.excess == 0 && (!best_ || current_.ticks < best_->ticks)) {
      best_ = current_;
      better = true;
    }
  }
  return better;
}

// Changes a piece of the schedule at random.
void MonetSearch::shake(Effort& effort) {
  const auto nodes = static_cast<std::int64_t>(model_.num_nodes());
  const std::int64_t first = random_.between(0, nodes - 1);
  const std::int64_t last = std::min(nodes - 1, first + random_.between(1, 8));
  const int kind = static_cast<int>(random_.between(0, 2));
  const auto stages = static_cast<std::int64_t>(model_.num_stages());
  const std::int64_t begin = random_.between(1, stages);
  const std::int64_t end = random_.between(begin, stages);
  for (std::int64_t i = first; i <= last; ++i) {
    const auto node = static_cast<std::size_t>(i);
    const auto limit = static_cast<std::int64_t>(model_.last_use[node]) + 1;
    for (std::int64_t t = begin; t <= std::min(end, limit); ++t) {
      current_.storage.store(static_cast<std::size_t>(t), node,
                             kind == 0 || (kind == 2 && random_.chance(0.5)));
    }
  }
  current_ = rated(std::move(current_.storage));
  effort.add(stages);
}

void MonetSearch::run(Effort& effort) {
  descend(kPatience, effort);
  for (int round = 0; !best_ && round < 30 && !effort.exhausted(); ++round) {
    price_ *= 2;
    current_ = rated(std::move(current_.storage));
    descend(kPatience, effort);
  }
  if (!best_) return;
  MonetSchedule home = *best_;
  for (int fruitless = 0; fruitless < kFruitlessShakes && !effort.exhausted(); ++fruitless) {
    current_ = rated(home.storage);
    shake(effort);
    if (descend(kPatience / 2, effort)) fruitless = 0;
    const double worse = value(current_) - value(home);
    const double warmth = 1e-4 * static_cast<double>(best_->ticks);
    if (worse <= 0 || random_.chance(std::exp(-worse / warmth))) home = current_;
    if (random_.chance(0.02)) home = *best_;
  }
}

}  // namespace regen::published
