#include "regen/published/monet/monet_stage_rating.h"

#include <algorithm>

namespace regen::published {
namespace {

// More than any schedule costs or needs: for what is not allowed at all.
constexpr Kib kForbidden = Kib{1} << 40;

}  // namespace

MonetStageRater::MonetStageRater(const MonetModel& model)
    : model_(model),
      words_((model.num_nodes() + 63) / 64),
      mandatory_(words_),
      made_(words_),
      base_(model.num_nodes()) {
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
}

// Goes through the nodes from the last to the first: what makes a node comes before it.
void MonetStageRater::find_made(std::size_t t, MonetRow args, MonetRow before, MonetRow after) {
  for (std::size_t w = 0; w < words_; ++w) {
    made_[w] = (after[w] & ~before[w]) | (t > 0 ? args[w] & ~after[w] : mandatory_[w]);
  }
  if (t == 0) return;
  for (std::size_t w = words_; w-- > 0;) {
    std::uint64_t seen = 0;
    while ((made_[w] & ~seen) != 0) {
      const int bit = 63 - std::countl_zero(made_[w] & ~seen);
      seen |= std::uint64_t{1} << bit;
      const MonetForward& node = model_.nodes[w * 64 + static_cast<std::size_t>(bit)];
      for (std::uint32_t input : node.inputs) {
        if (!has_bit(before, input)) set_bit(made_, input);
      }
      if (node.parent) set_bit(made_, *node.parent);
    }
  }
}

// The fastest that fits on top of `base`, else the smallest.
const MonetAlgorithm& MonetStageRater::fitting(const std::vector<MonetAlgorithm>& algorithms,
                                               Kib base) const {
  std::size_t best = 0;
  while (best + 1 < algorithms.size() && base + algorithms[best + 1].workspace <= model_.budget) {
    ++best;
  }
  return algorithms[best];
}

void MonetStageRater::rate_forward(std::size_t t, std::uint32_t id, Kib base, MonetRating& rating,
                                   MonetDecisions* decisions) {
  const MonetForward& node = model_.nodes[id];
  rating.ticks += t == 0 ? node.first_ticks : node.again_ticks;
  if (t > 0 && node.once) rating.excess += kForbidden;
  if (node.in_place) {
    base_[id] = base;  // rated together with its by-products
    return;
  }
  Kib workspace = t == 0 ? node.first_workspace : node.again_workspace;
  if (node.conv) {
    const MonetAlgorithm& chosen =
        fitting(t == 0 ? node.first_algorithms : node.again_algorithms, base);
    rating.ticks += chosen.ticks;
    workspace = chosen.workspace;
    if (decisions != nullptr) decisions->convs.push_back({id, chosen.number});
  }
  add_overrun(base + workspace, rating);
}

// An op and its by-products run in place together or not at all.
void MonetStageRater::rate_overwriting(std::size_t t, MonetRow args, MonetRow after, double price,
                                       MonetRating& rating, MonetDecisions* decisions) {
  for_each_bit(made_, [&](std::size_t i) {
    const MonetForward& node = model_.nodes[i];
    if (!node.in_place || node.parent) return;
    MonetRating plain, overwriting;
    bool possible = !has_bit(after, *node.overwrites) && !has_bit(args, *node.overwrites);
    const auto count = [&](std::uint32_t id) {
      const MonetForward& each = model_.nodes[id];
      if (!each.in_place) {
        possible = false;
        return;
      }
      add_overrun(base_[id] + (t == 0 ? each.first_workspace : each.again_workspace), plain);
      add_overrun(base_[id] + each.in_place_workspace, overwriting);
      overwriting.ticks += each.in_place_ticks;
    };
    count(static_cast<std::uint32_t>(i));
    for (std::uint32_t extra : node.intermediates) {
      if (has_bit(made_, extra)) count(extra);
    }
    if (!possible) overwriting.excess = kForbidden;
    if (!model_.checkpointing) plain.excess = kForbidden;
    const bool chosen = overwriting.value(price) <= plain.value(price);
    rating.ticks += chosen ? overwriting.ticks : plain.ticks;
    rating.excess += chosen ? overwriting.excess : plain.excess;
    if (!chosen || decisions == nullptr) return;
    decisions->in_place.push_back(static_cast<std::uint32_t>(i));
    for (std::uint32_t extra : node.intermediates) {
      if (has_bit(made_, extra)) decisions->in_place.push_back(extra);
    }
  });
}

Kib MonetStageRater::ram(MonetRow row) const {
  Kib sum = 0;
  for_each_bit(row, [&](std::size_t i) { sum += model_.nodes[i].ram; });
  return sum;
}

MonetRating MonetStageRater::rate_way(std::size_t t, std::size_t way, MonetRow before,
                                      Kib before_ram, MonetRow after, double price,
                                      MonetDecisions* decisions) {
  const MonetStage& stage = model_.stages[t];
  const MonetImplementation& chosen = stage.implementations[way];
  const MonetRow args = args_[t][way];
  MonetRating rating{.ticks = chosen.ticks, .way = static_cast<std::uint32_t>(way)};
  find_made(t, args, before, after);
  // The passing row: what is held before node i runs. It can only rise where something was made.
  Kib held = stage.held_forward + before_ram;
  add_overrun(held, rating);
  bool overwriting = false;
  for (std::size_t w = 0; w < words_; ++w) {
    std::uint64_t rest = made_[w] | (before[w] ^ after[w]) | (args[w] & ~after[w]);
    for (; rest != 0; rest &= rest - 1) {
      const std::size_t i = w * 64 + static_cast<std::size_t>(std::countr_zero(rest));
      const MonetForward& node = model_.nodes[i];
      const bool made = has_bit(made_, i);
      if (has_bit(before, i)) held -= node.ram;
      if (made) {
        Kib base = held + node.ram + node.local;
        for (std::uint32_t local : node.local_tensors) {
          if (local < i && has_bit(after, local)) base -= model_.nodes[local].ram;
          if (local > i && has_bit(before, local)) base -= model_.nodes[local].ram;
        }
        rate_forward(t, static_cast<std::uint32_t>(i), base, rating, decisions);
        overwriting |= node.in_place;
        if (decisions != nullptr) decisions->made.push_back(static_cast<std::uint32_t>(i));
      }
      if (has_bit(after, i) || has_bit(args, i)) held += node.ram;
      if (made && i + 1 < model_.num_nodes()) add_overrun(held, rating);
    }
  }
  if (overwriting) rate_overwriting(t, args, after, price, rating, decisions);
  if (t == 0) return rating;
  if (!model_.checkpointing && std::any_of(made_.begin(), made_.end(), std::identity{})) {
    rating.excess += kForbidden;
  }
  Kib total = held - stage.held_forward + stage.held_backward + chosen.workspace;
  if (!stage.algorithms.empty()) {
    const MonetAlgorithm& algorithm = fitting(stage.algorithms, total);
    rating.ticks += algorithm.ticks;
    total += algorithm.workspace;
    if (decisions != nullptr) decisions->backward_algorithm = algorithm.number;
  }
  add_overrun(total, rating);
  return rating;
}

MonetRating MonetStageRater::rate(std::size_t t, MonetRow before, Kib before_ram, MonetRow after,
                                  double price) {
  MonetRating best = rate_way(t, 0, before, before_ram, after, price, nullptr);
  for (std::size_t way = 1; way < model_.stages[t].implementations.size(); ++way) {
    const MonetRating other = rate_way(t, way, before, before_ram, after, price, nullptr);
    if (other.value(price) < best.value(price)) best = other;
  }
  return best;
}

MonetDecisions MonetStageRater::decide(std::size_t t, MonetRow before, MonetRow after,
                                       double price) {
  const MonetRating best = rate(t, before, after, price);
  MonetDecisions decisions;
  decisions.implementation = model_.stages[t].implementations[best.way].number;
  rate_way(t, best.way, before, ram(before), after, price, &decisions);
  return decisions;
}

}  // namespace regen::published
