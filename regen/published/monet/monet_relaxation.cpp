#include "regen/published/monet/monet_relaxation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace regen::published {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kKibPerUnit = 1 << 20;           // memory rows are written in GiB
constexpr double kBroken = 1e-4;                  // GiB: broken by more than this gets a row
constexpr double kProvenanceViolated = 0.02;      // of a tensor
constexpr std::size_t kMostProvenanceCuts = 400;  // a round
constexpr double kSlow = 1e-4;  // a round that raises the bound by less than this fraction is slow

double units(Kib kib) {
  return static_cast<double>(kib) / kKibPerUnit;
}

bool contains(const std::vector<std::uint32_t>& list, std::size_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

MonetRelaxation::MonetRelaxation(const MonetModel& model)
    : model_(model),
      nodes_(model.num_nodes()),
      recomputed_(model.num_stages() * nodes_, -1),
      stored_((model.num_stages() + 1) * nodes_, -1),
      in_place_(model.num_stages() * nodes_, -1),
      ways_(model.num_stages()),
      used_(model.num_stages()),
      algorithms_(model.num_stages() * nodes_),
      backward_algorithms_(model.num_stages()) {
  for (std::size_t t = 0; t < model.num_stages(); ++t) {
    const int begin = program_.num_columns();
    add_stage_columns(t);
    stage_columns_.push_back({begin, program_.num_columns()});
  }
  for (std::size_t t = 0; t < model.num_stages(); ++t) {
    add_storing_rows(t);
    add_recompute_rows(t);
    add_in_place_rows(t);
    add_backward_rows(t);
    if (t > 0) add_passing_row(t, 0);
    if (t > 0) add_backward_memory_row(t);
  }
  for (std::size_t i = 0; i < nodes_; ++i) add_recompute_memory_row(0, i);
}

void MonetRelaxation::add_all_memory_rows() {
  for (std::size_t t = 1; t < model_.num_stages(); ++t) {
    for (std::size_t i = 0; i < nodes_; ++i) {
      if (recomputed(t, i) >= 0) add_recompute_memory_row(t, i);
    }
  }
  finished_ = false;
}

void MonetRelaxation::add_stage_columns(std::size_t t) {
  for (std::size_t i = 0; i < nodes_; ++i) {
    const MonetForward& node = model_.nodes[i];
    const bool forced = t == 0 && !node.parent;
    const bool possible = t == 0 || (model_.checkpointing && !node.once && t <= model_.last_use[i]);
    if (t + 1 <= model_.last_use[i] + 1) {
      stored_[(t + 1) * nodes_ + i] = program_.add_column(0, 0, 1, true);
    }
    if (!possible) continue;
    const auto ticks = static_cast<double>(t == 0 ? node.first_ticks : node.again_ticks);
    recomputed_[t * nodes_ + i] = program_.add_column(ticks, forced ? 1 : 0, 1, true);
    if (node.in_place) {
      in_place_[t * nodes_ + i] =
          program_.add_column(static_cast<double>(node.in_place_ticks), 0, 1, true);
    }
    if (!node.conv) continue;
    // An algorithm that does not fit beside what is there in any case cannot be chosen.
    const Kib least = model_.stages[t].held_forward + node.ram + node.local;
    for (const MonetAlgorithm& each : t == 0 ? node.first_algorithms : node.again_algorithms) {
      const bool fits = least + each.workspace <= model_.budget;
      algorithms_[t * nodes_ + i].push_back(
          program_.add_column(static_cast<double>(each.ticks), 0, fits ? 1 : 0, true));
    }
  }
  const MonetStage& stage = model_.stages[t];
  std::vector<std::uint32_t> read;
  for (const MonetImplementation& way : stage.implementations) {
    ways_[t].push_back(program_.add_column(static_cast<double>(way.ticks),
                                           stage.implementations.size() == 1 ? 1 : 0, 1, true));
    read.insert(read.end(), way.args.begin(), way.args.end());
  }
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  for (std::uint32_t i : read) used_[t].emplace_back(i, program_.add_column(0, 0, 1, false));
  Kib least = stage.held_backward;
  if (stage.implementations.size() == 1) {
    for (std::uint32_t i : stage.implementations[0].args) least += model_.nodes[i].ram;
  }
  for (const MonetAlgorithm& each : stage.algorithms) {
    const bool fits = least + each.workspace <= model_.budget;
    backward_algorithms_[t].push_back(
        program_.add_column(static_cast<double>(each.ticks), 0, fits ? 1 : 0, true));
  }
}

void MonetRelaxation::add_storing_rows(std::size_t t) {
  for (std::size_t i = 0; i < nodes_; ++i) {
    const int after = stored_column(t + 1, i);
    if (after < 0) continue;
    std::vector<search::Term> terms{{after, 1}};
    if (const int before = stored_column(t, i); before >= 0) terms.push_back({before, -1});
    if (const int made = recomputed(t, i); made >= 0) terms.push_back({made, -1});
    program_.add_row(-kInfinity, 0, terms);
  }
}

void MonetRelaxation::add_recompute_rows(std::size_t t) {
  for (std::size_t i = 0; i < nodes_; ++i) {
    const MonetForward& node = model_.nodes[i];
    const int made = recomputed(t, i);
    if (made < 0) continue;
    if (node.conv) {
      std::vector<search::Term> terms{{made, -1}};
      for (int algorithm : algorithms_[t * nodes_ + i]) terms.push_back({algorithm, 1});
      program_.add_row(0, kInfinity, terms);
    }
    if (node.parent) {
      program_.add_row(-kInfinity, 0,
                       std::vector<search::Term>{{made, 1}, {recomputed(t, *node.parent), -1}});
    }
    if (t == 0) continue;
    for (std::uint32_t input : node.inputs) {
      if (node.parent && *node.parent == input) continue;
      std::vector<search::Term> terms{{made, 1}};
      if (recomputed(t, input) >= 0) terms.push_back({recomputed(t, input), -1});
      if (stored_column(t, input) >= 0) terms.push_back({stored_column(t, input), -1});
      program_.add_row(-kInfinity, 0, terms);
    }
    const auto reads = [&](const auto& pair) { return pair.first == i; };
    const bool asked =
        !node.intermediates.empty() || std::any_of(used_[t].begin(), used_[t].end(), reads);
    if (!asked && stored_column(t, i) >= 0) {
      program_.add_row(-kInfinity, 1,
                       std::vector<search::Term>{{made, 1}, {stored_column(t, i), 1}});
    }
  }
}

// The implementations of the stage that read the node.
std::vector<search::Term> MonetRelaxation::reading(std::size_t t, std::size_t node) const {
  std::vector<search::Term> terms;
  const auto& ways = model_.stages[t].implementations;
  for (std::size_t w = 0; w < ways.size(); ++w) {
    if (contains(ways[w].args, node)) terms.push_back({ways_[t][w], 1});
  }
  return terms;
}

void MonetRelaxation::add_in_place_rows(std::size_t t) {
  for (std::size_t i = 0; i < nodes_; ++i) {
    const int here = in_place(t, i);
    if (here < 0) continue;
    const MonetForward& node = model_.nodes[i];
    program_.add_row(model_.checkpointing ? -kInfinity : 0, 0,
                     std::vector<search::Term>{{here, 1}, {recomputed(t, i), -1}});
    if (node.parent) {
      const int parent = in_place(t, *node.parent);
      if (parent < 0) continue;
      program_.add_row(-kInfinity, 0, std::vector<search::Term>{{here, 1}, {parent, -1}});
      program_.add_row(-1, kInfinity,
                       std::vector<search::Term>{{here, 1}, {parent, -1}, {recomputed(t, i), -1}});
      continue;
    }
    // The overwritten tensor is neither stored nor read afterwards.
    if (const int kept = stored_column(t + 1, *node.overwrites); kept >= 0) {
      program_.add_row(-kInfinity, 1, std::vector<search::Term>{{here, 1}, {kept, 1}});
    }
    std::vector<search::Term> terms =
        t > 0 ? reading(t, *node.overwrites) : std::vector<search::Term>{};
    if (!terms.empty()) {
      terms.push_back({here, 1});
      program_.add_row(-kInfinity, 1, terms);
    }
    for (std::uint32_t extra : node.intermediates) {
      if (model_.nodes[extra].in_place || recomputed(t, extra) < 0) continue;
      program_.add_row(-kInfinity, 1,
                       std::vector<search::Term>{{here, 1}, {recomputed(t, extra), 1}});
    }
  }
}

void MonetRelaxation::add_backward_rows(std::size_t t) {
  std::vector<search::Term> one;
  for (int way : ways_[t]) one.push_back({way, 1});
  program_.add_row(1, 1, one);
  if (!backward_algorithms_[t].empty()) {
    one.clear();
    for (int algorithm : backward_algorithms_[t]) one.push_back({algorithm, 1});
    program_.add_row(1, 1, one);
  }
  for (const auto& [node, used] : used_[t]) {
    std::vector<search::Term> terms = reading(t, node);
    if (stored_column(t + 1, node) >= 0) terms.push_back({stored_column(t + 1, node), -1});
    terms.push_back({used, -1});
    program_.add_row(-kInfinity, 0, terms);
    if (t == 0) continue;
    terms.pop_back();
    if (recomputed(t, node) >= 0) terms.push_back({recomputed(t, node), -1});
    program_.add_row(-kInfinity, 0, terms);
    // What is there must have been stored before or made now: for fractions this says more than
    // the row above, where one half made counts twice when it is also stored.
    terms = reading(t, node);
    if (recomputed(t, node) >= 0) terms.push_back({recomputed(t, node), -1});
    if (stored_column(t, node) >= 0) terms.push_back({stored_column(t, node), -1});
    program_.add_row(-kInfinity, 0, terms);
  }
}

void MonetRelaxation::add_memory_row(Kib held, std::vector<search::Term> terms) {
  program_.add_row(-kInfinity, units(model_.budget - held), terms);
}

void MonetRelaxation::add_passing_row(std::size_t t, std::size_t node) {
  std::vector<search::Term> terms;
  for (std::size_t i = 0; i < nodes_; ++i) {
    const int column = stored_column(i >= node ? t : t + 1, i);
    if (column >= 0) terms.push_back({column, units(model_.nodes[i].ram)});
  }
  for (const auto& [i, used] : used_[t]) {
    if (i < node) terms.push_back({used, units(model_.nodes[i].ram)});
  }
  add_memory_row(model_.stages[t].held_forward, std::move(terms));
}

void MonetRelaxation::add_backward_memory_row(std::size_t t) {
  const MonetStage& stage = model_.stages[t];
  std::vector<search::Term> terms;
  for (std::size_t i = 0; i < nodes_; ++i) {
    if (stored_column(t + 1, i) < 0) continue;
    terms.push_back({stored_column(t + 1, i), units(model_.nodes[i].ram)});
  }
  for (const auto& [i, used] : used_[t]) terms.push_back({used, units(model_.nodes[i].ram)});
  for (std::size_t w = 0; w < ways_[t].size(); ++w) {
    terms.push_back({ways_[t][w], units(stage.implementations[w].workspace)});
  }
  for (std::size_t c = 0; c < stage.algorithms.size(); ++c) {
    terms.push_back({backward_algorithms_[t][c], units(stage.algorithms[c].workspace)});
  }
  add_memory_row(stage.held_backward, std::move(terms));
}

// The row for the recomputation of a node. `strong` counts for a local tensor whichever of stored
// and recomputed is larger in the last solution: both are valid, since without the recomputation
// the row is no more than the passing row.
std::vector<search::Term> MonetRelaxation::recompute_memory_terms(std::size_t t, std::size_t node,
                                                                  bool strong) const {
  const MonetForward& from = model_.nodes[node];
  const int made = recomputed(t, node);
  Kib with_node = from.ram + from.local;
  std::vector<search::Term> terms;
  for (std::size_t i = 0; i < nodes_; ++i) {
    if (i == node) continue;
    const int column = stored_column(i > node ? t : t + 1, i);
    if (column < 0) continue;
    if (contains(from.local_tensors, i)) {
      if (!strong || at(column) <= at(made)) continue;
      with_node -= model_.nodes[i].ram;
    }
    terms.push_back({column, units(model_.nodes[i].ram)});
  }
  for (const auto& [i, used] : used_[t]) {
    if (i < node) terms.push_back({used, units(model_.nodes[i].ram)});
  }
  if (from.conv) {
    const auto& algorithms = t == 0 ? from.first_algorithms : from.again_algorithms;
    for (std::size_t c = 0; c < algorithms.size(); ++c) {
      terms.push_back({algorithms_[t * nodes_ + node][c], units(algorithms[c].workspace)});
    }
  } else {
    const Kib workspace = t == 0 ? from.first_workspace : from.again_workspace;
    with_node += workspace;
    if (from.in_place) {
      terms.push_back({in_place(t, node), units(from.in_place_workspace - workspace)});
    }
  }
  terms.push_back({made, units(with_node)});
  return terms;
}

void MonetRelaxation::add_recompute_memory_row(std::size_t t, std::size_t node) {
  add_memory_row(model_.stages[t].held_forward, recompute_memory_terms(t, node, false));
}

double MonetRelaxation::at(int column) const {
  if (column < 0 || answer_.values.empty()) return 0;
  return answer_.values[static_cast<std::size_t>(column)];
}

double MonetRelaxation::stored(std::size_t t, std::size_t i) const {
  return at(stored_column(t, i));
}

double MonetRelaxation::row_value(const std::vector<search::Term>& terms) const {
  double sum = 0;
  for (const search::Term& term : terms) sum += term.weight * at(term.column);
  return sum;
}

int MonetRelaxation::add_broken_rows() {
  int added = 0;
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    const Kib held = model_.stages[t].held_forward;
    const double room = units(model_.budget - held) + kBroken;
    for (std::size_t i = 0; i < nodes_; ++i) {
      if (recomputed(t, i) < 0 || at(recomputed(t, i)) < 1e-6) continue;
      std::vector<search::Term> terms = recompute_memory_terms(t, i, true);
      if (row_value(terms) <= room) continue;
      add_memory_row(held, std::move(terms));
      ++added;
    }
  }
  return added;
}

void MonetRelaxation::sum_recomputations() {
  made_before_.assign((model_.num_stages() + 1) * nodes_, 0);
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    for (std::size_t i = 0; i < nodes_; ++i) {
      made_before_[(t + 1) * nodes_ + i] =
          made_before_[t * nodes_ + i] + (t > 0 ? at(recomputed(t, i)) : 0);
    }
  }
}

void MonetRelaxation::cover(std::size_t begin, std::size_t end, Cover& cover) const {
  for (std::size_t i = 0; i < nodes_; ++i) {
    double made = made_before_[(end + 1) * nodes_ + i] - made_before_[begin * nodes_ + i];
    cover.via[i] = i;
    for (std::uint32_t input : model_.nodes[i].inputs) {
      if (cover.most[input] >= made) continue;
      made = cover.most[input];
      cover.via[i] = input;
    }
    cover.most[i] = at(stored_column(begin, i)) + made;
  }
}

double MonetRelaxation::demanded(std::size_t node, std::size_t end, bool read) const {
  return read ? row_value(reading(end, node)) : at(stored_column(end + 1, node));
}

// For each tensor, stage and kind the range of stages that is broken most.
std::vector<MonetRelaxation::Demand> MonetRelaxation::broken_demands() const {
  const std::size_t stages = model_.num_stages();
  std::vector<Demand> worst(stages * nodes_ * 2);
  for (std::size_t end = 1; end < stages; ++end) {
    for (std::size_t i = 0; i < nodes_; ++i) {
      const auto reads = [&](const auto& pair) { return pair.first == i; };
      const bool read = std::any_of(used_[end].begin(), used_[end].end(), reads);
      worst[(end * nodes_ + i) * 2] = {i, 0, end, false, demanded(i, end, false)};
      worst[(end * nodes_ + i) * 2 + 1] = {i, 0, end, true, read ? demanded(i, end, true) : 0};
    }
  }
  std::vector<Demand> broken;
  Cover here{std::vector<double>(nodes_), std::vector<std::size_t>(nodes_)};
  for (std::size_t end = 1; end < stages; ++end) {
    std::vector<double> least(nodes_, kInfinity);
    std::vector<std::size_t> begin_of(nodes_, 0);
    for (std::size_t begin = 1; begin <= end; ++begin) {
      cover(begin, end, here);
      for (std::size_t i = 0; i < nodes_; ++i) {
        if (here.most[i] >= least[i]) continue;
        least[i] = here.most[i];
        begin_of[i] = begin;
      }
    }
    for (std::size_t k = end * nodes_ * 2; k < (end + 1) * nodes_ * 2; ++k) {
      Demand demand = worst[k];
      demand.begin = begin_of[demand.node];
      demand.violation -= least[demand.node];
      if (demand.violation > kProvenanceViolated) broken.push_back(demand);
    }
  }
  return broken;
}

void MonetRelaxation::add_provenance_cut(const Demand& demand) {
  Cover here{std::vector<double>(nodes_), std::vector<std::size_t>(nodes_)};
  cover(demand.begin, demand.end, here);
  std::vector<search::Term> terms;
  if (demand.read) {
    terms = reading(demand.end, demand.node);
  } else {
    terms.push_back({stored_column(demand.end + 1, demand.node), 1});
  }
  std::size_t i = demand.node;
  while (true) {
    if (const int column = stored_column(demand.begin, i); column >= 0)
      terms.push_back({column, -1});
    if (here.via[i] == i) break;
    i = here.via[i];
  }
  for (std::size_t t = demand.begin; t <= demand.end; ++t) {
    if (recomputed(t, i) >= 0) terms.push_back({recomputed(t, i), -1});
  }
  program_.add_row(-kInfinity, 0, terms);
}

int MonetRelaxation::add_provenance_cuts() {
  sum_recomputations();
  std::vector<Demand> broken = broken_demands();
  std::stable_sort(broken.begin(), broken.end(),
                   [](const Demand& a, const Demand& b) { return a.violation > b.violation; });
  if (broken.size() > kMostProvenanceCuts) broken.resize(kMostProvenanceCuts);
  for (const Demand& demand : broken) add_provenance_cut(demand);
  return static_cast<int>(broken.size());
}

void MonetRelaxation::tighten(Effort& effort) {
  int slow_rounds = 0;
  while (!finished_ && !effort.exhausted()) {
    const double before = bound_;
    search::ModelAnswer answer = program_.solve_relaxation(effort);
    bound_ = std::max(bound_, answer.bound);
    if (answer.status == search::ModelStatus::kInfeasible) {
      infeasible_ = finished_ = true;
      return;
    }
    if (answer.status != search::ModelStatus::kOptimal) return;
    answer_ = std::move(answer);
    slow_rounds = bound_ < before * (1 + kSlow) ? slow_rounds + 1 : 0;
    const int added = add_broken_rows() + add_provenance_cuts();
    finished_ = added == 0 || slow_rounds > 2;
  }
}

std::vector<search::ColumnValue> MonetRelaxation::fixed_below(double cutoff) const {
  return program_.fixed_by_reduced_costs(answer_, cutoff);
}

}  // namespace regen::published
