#include "regen/planners/monet_annealing.h"

#include <algorithm>
#include <cmath>

namespace regen {

MonetAnnealing::MonetAnnealing(const MonetModel& model, std::uint64_t seed)
    : model_(model),
      rater_(model),
      random_(seed),
      words_((model.num_nodes() + 63) / 64),
      storage_(model.num_stages(), model.num_nodes()),
      rated_(storage_),
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
  find_gaps();
  choices_.courses.assign(gaps_.size(), kDrop);
  choices_.ways.assign(model.num_stages(), 0);
  take_choices({std::vector<Course>(gaps_.size(), kKeepOnceMade), choices_.ways});
}

// Gap g of a node begins with its g-th reader; the forward pass counts as the first one. The gap
// after the last reader is there as well: a copy may still serve recomputations.
void MonetAnnealing::find_gaps() {
  const std::size_t nodes = model_.num_nodes();
  gap_at_.resize(model_.num_stages() * nodes);
  for (std::uint32_t i = 0; i < nodes; ++i) {
    first_gap_.push_back(gaps_.size());
    for (std::uint32_t t = 0; t < model_.num_stages(); ++t) {
      const bool read = std::any_of(args_[t].begin(), args_[t].end(),
                                    [&](const auto& bits) { return has_bit(bits, i); });
      if (t == 0 || read) gaps_.push_back({i, t, t});
      if (t > 0 && read) gaps_[gaps_.size() - 2].end = t;
      gaps_.back().end = std::max(t, model_.last_use[i]);
      gap_at_[t * nodes + i] = static_cast<std::uint32_t>(gaps_.size() - 1);
    }
  }
  first_gap_.push_back(gaps_.size());
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

void MonetAnnealing::put_course(std::size_t gap, Course course) {
  const auto [node, begin, end] = gaps_[gap];
  const Course old = choices_.courses[gap];
  if (old >= 0) set_bit(forced_.row(static_cast<std::size_t>(old)), node, false);
  choices_.courses[gap] = course;
  if (course >= 0) set_bit(forced_.row(static_cast<std::size_t>(course)), node, true);
  for (std::uint32_t t = begin; t < std::max(end, begin + 1); ++t) {
    const bool inside = course == kKeepOnceMade && t != begin;
    keeping_.store(t, node, inside || (course >= 0 && course <= static_cast<Course>(t)));
  }
}

void MonetAnnealing::take_choices(Choices choices) {
  for (std::size_t gap = 0; gap < gaps_.size(); ++gap) put_course(gap, choices.courses[gap]);
  choices_.ways = std::move(choices.ways);
}

// What could be there before each stage, if nothing left before its gap ends.
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

double MonetAnnealing::evaluate() {
  lay_out_availability();
  drop_unread_copies();
  ticks_ = 0;
  excess_ = 0;
  bool changed_before = false;
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    const MonetRow before = std::as_const(storage_).row(t);
    const MonetRow after = std::as_const(storage_).row(t + 1);
    const MonetRow rated = std::as_const(rated_).row(t + 1);
    const bool changed = !std::equal(after.begin(), after.end(), rated.begin());
    if (changed || changed_before || ratings_[t].ticks == 0) {
      ratings_[t] = rater_.rate(t, before, after, price_);
    }
    changed_before = changed;
    ticks_ += ratings_[t].ticks;
    excess_ += ratings_[t].excess;
  }
  rated_ = storage_;
  return static_cast<double>(ticks_) + price_ * static_cast<double>(excess_);
}

void MonetAnnealing::set(std::size_t index, bool way, Course value, std::vector<Undo>& undo) {
  if (way) {
    undo.push_back({index, true, choices_.ways[index]});
    choices_.ways[index] = static_cast<std::uint8_t>(value);
  } else {
    undo.push_back({index, false, choices_.courses[index]});
    put_course(index, value);
  }
}

void MonetAnnealing::take_back(const std::vector<Undo>& undo) {
  for (std::size_t k = undo.size(); k-- > 0;) {
    if (undo[k].way) {
      choices_.ways[undo[k].index] = static_cast<std::uint8_t>(undo[k].old);
    } else {
      put_course(undo[k].index, undo[k].old);
    }
  }
}

MonetAnnealing::Course MonetAnnealing::draw_course(std::size_t gap) {
  const auto [node, begin, end] = gaps_[gap];
  const Course old = choices_.courses[gap];
  const double die = random_.real();
  if (die < 0.2) return kDrop;
  if (die < 0.4) return kKeepOnceMade;
  if (die < 0.6) return static_cast<Course>(begin);
  if (old > static_cast<Course>(begin) && die < 0.8) {
    return static_cast<Course>(std::clamp<std::int64_t>(old + random_.between(-3, 3), begin, end));
  }
  return static_cast<Course>(random_.between(begin, end));
}

void MonetAnnealing::change(std::vector<Undo>& undo) {
  const auto draw = [&](std::size_t count) {
    return static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(count) - 1));
  };
  const std::size_t stage = draw(model_.num_stages());
  const std::size_t ways = model_.stages[stage].implementations.size();
  if (ways > 1 && random_.chance(0.3)) {
    set(stage, true, static_cast<Course>(draw(ways)), undo);
    if (random_.chance(0.5)) return;
  }
  const std::size_t node = draw(model_.num_nodes());
  const auto change_node = [&](std::size_t i) {
    const std::size_t gap = first_gap_[i] + draw(first_gap_[i + 1] - first_gap_[i]);
    set(gap, false, draw_course(gap), undo);
    return gap;
  };
  const std::size_t gap = change_node(node);
  if (random_.chance(0.4)) return;
  const auto& inputs = model_.nodes[node].inputs;
  if (inputs.empty()) return;
  const std::size_t input = inputs[draw(inputs.size())];
  // What a tensor no longer has to do, one near it mostly has to; or both are made together.
  const Course course = choices_.courses[gap];
  const std::size_t other =
      course >= 0 ? gap_at_[static_cast<std::size_t>(course) * model_.num_nodes() + input] : 0;
  if (course > 0 && random_.chance(0.4)) {
    set(other, false, course, undo);
  } else {
    change_node(input);
  }
  if (random_.chance(0.3)) change_node(draw(model_.num_nodes()));
}

void MonetAnnealing::run(std::int64_t steps, Effort& effort) {
  Ticks least = 0;
  for (const MonetStage& stage : model_.stages) least += stage.least_ticks;
  const double unit = static_cast<double>(least + 1);
  const double base_price = unit / static_cast<double>(std::max<Kib>(model_.budget, 1));
  if (best_choices_) take_choices(*best_choices_);
  const double hot = 0.03;
  std::vector<Undo> undo;
  double value = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step % 256 == 0) {
      if (effort.exhausted()) break;
      const double progress = static_cast<double>(step) / static_cast<double>(steps);
      price_ = base_price * 0.003 * std::pow(3000, progress);
      ratings_.assign(model_.num_stages(), {});
      value = evaluate();
    }
    const double progress = static_cast<double>(step) / static_cast<double>(steps);
    const double warmth = unit * hot * std::pow(1e-3, progress);
    undo.clear();
    change(undo);
    const double changed = evaluate();
    effort.add(static_cast<std::int64_t>(model_.num_stages()));
    if (changed > value && !random_.chance(std::exp((value - changed) / warmth))) {
      take_back(undo);
      continue;
    }
    value = changed;
    if (excess_ == 0 && (!best_ || ticks_ < best_->ticks)) {
      best_ = MonetSchedule{storage_, ticks_, 0};
      best_choices_ = choices_;
    }
  }
}

}  // namespace regen
