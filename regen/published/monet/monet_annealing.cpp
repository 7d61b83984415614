#include "regen/published/monet/monet_annealing.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace regen::published {
namespace {

// From one to the other by equal factors.
double between(double first, double last, double progress) {
  return first * std::pow(last / first, progress);
}

}  // namespace

MonetAnnealing::MonetAnnealing(const MonetModel& model, std::uint64_t seed, bool by_products)
    : model_(model),
      rater_(model),
      random_(seed),
      words_((model.num_nodes() + 63) / 64),
      storage_(model.num_stages(), model.num_nodes()),
      accepted_(storage_),
      ratings_(model.num_stages()),
      forced_(storage_),
      keeping_(storage_),
      available_(storage_),
      made_(words_),
      wanted_(words_),
      mandatory_(words_) {
  for (std::size_t i = 0; i < model.num_nodes(); ++i) {
    if (!model.nodes[i].parent) set_bit(mandatory_, i);
  }
  for (const MonetStage& stage : model.stages) {
    auto& ways = args_.emplace_back();
    for (const MonetImplementation& way : stage.implementations) {
      auto& bits = ways.emplace_back(words_);
      for (std::uint32_t arg : way.args) set_bit(bits, arg);
    }
  }
  find_intervals();
  choices_.courses.assign(intervals_.size(), {kDrop, 0});
  choices_.ways.assign(model.num_stages(), 0);
  find_free_choices(by_products);
  Choices first{std::vector<Course>(intervals_.size(), {kDrop, 0}), {}};
  for (const std::size_t i : free_nodes_) {
    for (std::size_t g = first_interval_[i]; g < first_interval_[i + 1]; ++g) {
      first.courses[g] = {kKeepOnceMade, 0};
    }
  }
  for (const auto& ways : free_ways_) first.ways.push_back(static_cast<std::uint8_t>(ways[0]));
  take_choices(std::move(first));
}

void MonetAnnealing::find_free_choices(bool by_products) {
  for (std::size_t i = 0; i < model_.num_nodes(); ++i) {
    if (by_products || !model_.nodes[i].parent) free_nodes_.push_back(i);
  }
  const auto reads_by_product = [&](const MonetImplementation& way) {
    return std::ranges::any_of(way.args,
                               [&](std::uint32_t i) { return model_.nodes[i].parent.has_value(); });
  };
  for (const MonetStage& stage : model_.stages) {
    std::vector<std::size_t> ways;
    for (std::size_t way = 0; way < stage.implementations.size(); ++way) {
      if (by_products || !reads_by_product(stage.implementations[way])) ways.push_back(way);
    }
    // A mode may leave nothing else.
    if (ways.empty()) ways.push_back(0);
    free_ways_.push_back(std::move(ways));
  }
}

// Reuse interval g of a node begins with its g-th reader; the forward pass counts as the first one.
// The interval after the last reader exists as well: a copy may still serve recomputations.
void MonetAnnealing::find_intervals() {
  const std::size_t nodes = model_.num_nodes();
  interval_at_.resize(model_.num_stages() * nodes);
  for (std::uint32_t i = 0; i < nodes; ++i) {
    first_interval_.push_back(intervals_.size());
    for (std::uint32_t t = 0; t < model_.num_stages(); ++t) {
      const bool read = std::any_of(args_[t].begin(), args_[t].end(),
                                    [&](const auto& bits) { return has_bit(bits, i); });
      if (t == 0 || read) intervals_.push_back({i, t, t});
      if (t > 0 && read) intervals_[intervals_.size() - 2].end = t;
      intervals_.back().end = std::max(t, model_.last_use[i]);
      interval_at_[t * nodes + i] = static_cast<std::uint32_t>(intervals_.size() - 1);
    }
  }
  first_interval_.push_back(intervals_.size());
}

// Adds to `made` whatever is missing for it.
void MonetAnnealing::find_made(std::span<std::uint64_t> made, MonetRow available) const {
  for (std::size_t w = words_; w-- > 0;) {
    std::uint64_t seen = 0;
    while ((made[w] & ~seen) != 0) {
      const int bit = 63 - std::countl_zero(made[w] & ~seen);
      seen |= std::uint64_t{1} << bit;
      const MonetForward& node = model_.nodes[w * 64 + static_cast<std::size_t>(bit)];
      for (std::uint32_t input : node.inputs) {
        if (!has_bit(available, input)) set_bit(made, input);
      }
      if (node.parent) set_bit(made, *node.parent);
    }
  }
}

void MonetAnnealing::put_course(std::size_t interval, Course course) {
  const auto [node, begin, end] = intervals_[interval];
  const std::int32_t old = choices_.courses[interval].from;
  if (old >= 0) set_bit(forced_.row(static_cast<std::size_t>(old)), node, false);
  choices_.courses[interval] = course;
  if (course.from >= 0) set_bit(forced_.row(static_cast<std::size_t>(course.from)), node, true);
  for (std::uint32_t t = begin; t < std::max(end, begin + 1); ++t) {
    const auto stage = static_cast<std::int32_t>(t);
    const bool inside = course.from == kKeepOnceMade && t != begin;
    const bool kept = course.from >= 0 && course.from <= stage && stage < course.until;
    const bool back = course.from >= 0 && course.again && stage > course.until;
    keeping_.store(t, node, inside || kept || back);
  }
}

void MonetAnnealing::take_choices(Choices choices) {
  for (std::size_t interval = 0; interval < intervals_.size(); ++interval)
    put_course(interval, choices.courses[interval]);
  choices_.ways = std::move(choices.ways);
}

// What could be stored before each stage, if nothing left before its interval ends.
void MonetAnnealing::lay_out_availability() {
  std::fill(available_.row(0).begin(), available_.row(0).end(), 0);
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    const MonetRow here = std::as_const(available_).row(t);
    const MonetRow args = args_[t][choices_.ways[t]];
    const MonetRow forced = std::as_const(forced_).row(t);
    const MonetRow keeping = std::as_const(keeping_).row(t);
    const std::span<std::uint64_t> next = available_.row(t + 1);
    std::uint64_t any = 0;
    for (std::size_t w = 0; w < words_; ++w) {
      made_[w] = (forced[w] | (t > 0 ? args[w] : mandatory_[w])) & ~here[w];
      any |= made_[w];
    }
    if (t > 0 && any != 0) find_made(made_, here);
    for (std::size_t w = 0; w < words_; ++w) {
      // A stored tensor that the backward node reads is stored once more.
      next[w] = forced[w] | (t > 0 ? here[w] & args[w] : 0) | ((here[w] | made_[w]) & keeping[w]);
    }
  }
}

// Backwards through the stages: a copy stays only while something will read it.
void MonetAnnealing::drop_unread_copies() {
  std::vector<std::uint64_t>& wanted = wanted_;
  std::fill(wanted.begin(), wanted.end(), 0);
  for (std::size_t t = model_.num_stages(); t-- > 0;) {
    const MonetRow here = std::as_const(available_).row(t);
    const MonetRow args = args_[t][choices_.ways[t]];
    const std::span<std::uint64_t> row = storage_.row(t + 1);
    bool any = false;
    for (std::size_t w = 0; w < words_; ++w) {
      row[w] = wanted[w] | (t > 0 ? args[w] & here[w] : 0);
      made_[w] = (row[w] | args[w]) & ~here[w];
      wanted[w] = row[w] & here[w];
      any |= made_[w] != 0;
    }
    if (t == 0) return;
    if (!any) continue;
    find_made(made_, here);
    for_each_bit(made_, [&](std::size_t i) {
      for (std::uint32_t input : model_.nodes[i].inputs) {
        if (has_bit(here, input)) set_bit(wanted, input);
      }
    });
  }
}

double MonetAnnealing::rate_everything() {
  lay_out_availability();
  drop_unread_copies();
  accepted_ = storage_;
  double value = 0;
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    ratings_[t] =
        rater_.rate(t, std::as_const(storage_).row(t), std::as_const(storage_).row(t + 1), price_);
    value += ratings_[t].value(price_);
  }
  return value;
}

// The value of the changed choices, or nothing if it is sure to be above the limit.
std::optional<double> MonetAnnealing::rate_changes(double value, double limit) {
  lay_out_availability();
  drop_unread_copies();
  news_.clear();
  bool before_changed = false;
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    const MonetRow after = std::as_const(storage_).row(t + 1);
    const MonetRow old = std::as_const(accepted_).row(t + 1);
    const bool changed = !std::equal(after.begin(), after.end(), old.begin());
    if (changed || before_changed) {
      news_.emplace_back(t, MonetRating{});
      value -= ratings_[t].value(price_) - static_cast<double>(model_.stages[t].least_ticks);
    }
    before_changed = changed;
  }
  // So far the changed stages count with the least they can cost.
  for (auto& [t, rating] : news_) {
    rating =
        rater_.rate(t, std::as_const(storage_).row(t), std::as_const(storage_).row(t + 1), price_);
    value += rating.value(price_) - static_cast<double>(model_.stages[t].least_ticks);
    if (value > limit) return std::nullopt;
  }
  return value;
}

void MonetAnnealing::accept() {
  for (const auto& [t, rating] : news_) {
    ratings_[t] = rating;
    const MonetRow row = std::as_const(storage_).row(t + 1);
    std::copy(row.begin(), row.end(), accepted_.row(t + 1).begin());
  }
  Ticks ticks = 0;
  for (const MonetRating& rating : ratings_) {
    if (rating.excess > 0) return;
    ticks += rating.ticks;
  }
  if (best_ && best_->ticks <= ticks) return;
  best_ = MonetSchedule{accepted_, ticks, 0};
  best_choices_ = choices_;
}

void MonetAnnealing::set_way(std::size_t stage, std::size_t way, std::vector<Undo>& undo) {
  undo.push_back({stage, true, choices_.ways[stage], {}});
  choices_.ways[stage] = static_cast<std::uint8_t>(way);
}

void MonetAnnealing::set_course(std::size_t interval, Course course, std::vector<Undo>& undo) {
  undo.push_back({interval, false, 0, choices_.courses[interval]});
  put_course(interval, course);
}

void MonetAnnealing::take_back(const std::vector<Undo>& undo) {
  for (std::size_t k = undo.size(); k-- > 0;) {
    if (undo[k].way) {
      choices_.ways[undo[k].index] = undo[k].old_way;
    } else {
      put_course(undo[k].index, undo[k].old);
    }
  }
}

MonetAnnealing::Course MonetAnnealing::draw_course(std::size_t interval) {
  const auto begin = static_cast<std::int32_t>(intervals_[interval].begin);
  const auto end = static_cast<std::int32_t>(intervals_[interval].end);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(random_.between(low, high));
  };
  Course course = choices_.courses[interval];
  const double die = random_.real();
  if (die < 0.2) return {kDrop, 0};
  if (die < 0.4) return {kKeepOnceMade, 0};
  if (die < 0.6) {
    course = {begin, end};
  } else if (course.from >= begin && die < 0.8) {
    if (random_.chance(0.5)) course.from = std::clamp(course.from + draw(-3, 3), begin, end);
    if (random_.chance(0.5)) course.until = course.until + draw(-3, 3);
  } else {
    course = {draw(begin, end), end};
  }
  if (random_.chance(0.2)) course.until = draw(course.from, end);
  course.until = std::clamp(course.until, course.from, end);
  course.again = course.until < end && random_.chance(0.5);
  return course;
}

void MonetAnnealing::change(std::vector<Undo>& undo) {
  const auto draw = [&](std::size_t count) {
    return static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(count) - 1));
  };
  const std::size_t stage = draw(model_.num_stages());
  const std::vector<std::size_t>& ways = free_ways_[stage];
  if (ways.size() > 1 && random_.chance(0.3)) {
    set_way(stage, ways[draw(ways.size())], undo);
    if (random_.chance(0.5)) return;
  }
  const auto change_node = [&](std::size_t i) {
    const std::size_t interval =
        first_interval_[i] + draw(first_interval_[i + 1] - first_interval_[i]);
    set_course(interval, draw_course(interval), undo);
    return interval;
  };
  const std::size_t node = free_nodes_[draw(free_nodes_.size())];
  const std::size_t interval = change_node(node);
  if (random_.chance(0.4)) return;
  const auto& inputs = model_.nodes[node].inputs;
  if (inputs.empty()) return;
  const std::size_t input = inputs[draw(inputs.size())];
  // What a tensor no longer has to do, one near it mostly has to; or both are made together.
  const std::int32_t from = choices_.courses[interval].from;
  if (from > 0 && random_.chance(0.4)) {
    const std::size_t other =
        interval_at_[static_cast<std::size_t>(from) * model_.num_nodes() + input];
    set_course(other, {from, static_cast<std::int32_t>(intervals_[other].end)}, undo);
  } else {
    change_node(input);
  }
  if (random_.chance(0.3)) change_node(free_nodes_[draw(free_nodes_.size())]);
}

void MonetAnnealing::run(std::int64_t steps, const MonetCooling& cooling, Effort& effort) {
  Ticks least = 0;
  for (const MonetStage& stage : model_.stages) least += stage.least_ticks;
  const double unit = static_cast<double>(least + 1);
  const double base_price = unit / static_cast<double>(std::max<Kib>(model_.budget, 1));
  if (best_choices_) take_choices(*best_choices_);
  std::vector<Undo> undo;
  double value = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const double progress = static_cast<double>(step) / static_cast<double>(steps);
    if (step % 256 == 0) {
      if (effort.exhausted()) break;
      price_ = base_price * between(cooling.first_price, cooling.last_price, progress);
      value = rate_everything();
    }
    undo.clear();
    change(undo);
    const double warmth = unit * between(cooling.hot, cooling.cold, progress);
    const auto changed = rate_changes(value, value - warmth * std::log(1 - random_.real()));
    effort.add(static_cast<std::int64_t>(news_.size()) + 1);
    if (!changed) {
      take_back(undo);
      continue;
    }
    value = *changed;
    accept();
  }
}

}  // namespace regen::published
