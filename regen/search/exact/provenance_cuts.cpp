#include "regen/search/exact/provenance_cuts.h"

#include <algorithm>

#include "regen/base/tolerance.h"

namespace regen::search {
namespace {

constexpr double kLeastViolation = 0.05;
constexpr std::size_t kMaxRowsPerRound = 1500;
constexpr int kRowsPerValue = 40;
constexpr int kRowsPerStageAndValue = 4;

struct Broken {
  double by = 0;
  std::size_t first = 0;  // s1
  std::size_t last = 0;   // s2
  ValueId value;
  bool read = false;  // by the op of the last stage
};

class ProvenanceSeparator {
 public:
  ProvenanceSeparator(StageModel& model, const std::vector<double>& values)
      : model_(model),
        stages_(model.stages()),
        keep_((stages_.num_ops + 1) * stages_.num_values, 0),
        run_sums_((stages_.num_ops + 1) * stages_.num_ops, 0),
        least_(stages_.num_values, 0),
        next_(stages_.num_values) {
    for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
      for (std::size_t t = 0; t <= stages_.num_ops; ++t) {
        keep_[t * stages_.num_values + v.index()] = model.value(model.kept(t, v), values);
      }
    }
    for (std::size_t t = 0; t < stages_.num_ops; ++t) {
      for (OpId op : stages_.graph->ops()) {
        run_sums_[(t + 1) * stages_.num_ops + op.index()] =
            runs_before(t, op.index()) + model.value(model.run(t, op), values);
      }
    }
  }

  int run() {
    std::vector<Broken> broken = find();
    std::ranges::stable_sort(broken, [](const auto& a, const auto& b) { return a.by > b.by; });
    broken = spread(broken);
    for (const Broken& row : broken) add(row);
    return static_cast<int>(broken.size());
  }

 private:
  double keep(std::size_t stage, ValueId v) const {
    return keep_[stage * stages_.num_values + v.index()];
  }
  double runs_before(std::size_t stage, std::size_t op) const {
    return run_sums_[stage * stages_.num_ops + op];
  }

  // For each value made before s1: the least right-hand side over all paths, and the next value on
  // the way to it (none: the path ends). Values ascend with their producers.
  void walk_back(std::size_t s1, std::size_t s2) {
    for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
      const std::size_t producer = stages_.producer[v];
      if (producer >= s1) {
        least_[v] = 2;  // its first run lies in between: no row is broken
        continue;
      }
      double rest = runs_before(s2 + 1, producer) - runs_before(s1, producer);
      ValueId way;
      for (ValueId u : stages_.reads[OpId(producer)]) {
        if (least_[u] < rest - kZeroFraction) {
          rest = least_[u];
          way = u;
        }
      }
      least_[v] = keep(s1, v) + rest;
      next_[v] = way;
    }
  }

  std::vector<Broken> find() {
    std::vector<Broken> broken;
    std::vector<char> read(stages_.num_values, 0);
    for (std::size_t s2 = 1; s2 < stages_.num_ops; ++s2) {
      std::vector<ValueId> wanted;
      for (ValueId v : stages_.reads[OpId(s2)]) read[v.index()] = 1;
      for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
        if (read[v.index()] || keep(s2 + 1, v) > kLeastViolation) wanted.push_back(v);
      }
      for (std::size_t s1 = 1; s1 <= s2; ++s1) {
        walk_back(s1, s2);
        for (ValueId v : wanted) {
          if (stages_.producer[v] >= s1) break;
          const double by = (read[v.index()] ? 1.0 : keep(s2 + 1, v)) - least_[v];
          if (by > kLeastViolation) broken.push_back({by, s1, s2, v, read[v.index()] != 0});
        }
      }
      for (ValueId v : stages_.reads[OpId(s2)]) read[v.index()] = 0;
    }
    return broken;
  }

  // The worst ones, but not all of one kind: rows of the same value and stage say much the same.
  std::vector<Broken> spread(const std::vector<Broken>& broken) const {
    const std::size_t cells = (stages_.num_ops + 1) * stages_.num_values;
    std::vector<int> by_value(stages_.num_values, 0);
    std::vector<int> by_first(cells, 0);
    std::vector<int> by_last(cells, 0);
    std::vector<Broken> chosen;
    for (const Broken& row : broken) {
      int& value = by_value[row.value.index()];
      int& first = by_first[row.first * stages_.num_values + row.value.index()];
      int& last = by_last[row.last * stages_.num_values + row.value.index()];
      if (value >= kRowsPerValue || first >= kRowsPerStageAndValue ||
          last >= kRowsPerStageAndValue) {
        continue;
      }
      ++value, ++first, ++last;
      chosen.push_back(row);
      if (chosen.size() == kMaxRowsPerRound) break;
    }
    return chosen;
  }

  void add(const Broken& broken) {
    walk_back(broken.first, broken.last);
    Expression row;
    row.add(broken.read ? kOne : model_.kept(broken.last + 1, broken.value), 1);
    ValueId v = broken.value;
    while (next_[v].valid()) {
      row.add(model_.kept(broken.first, v), -1);
      v = next_[v];
    }
    row.add(model_.kept(broken.first, v), -1);
    const OpId end(stages_.producer[v]);
    for (std::size_t s = broken.first; s <= broken.last; ++s) row.add(model_.run(s, end), -1);
    model_.add_at_most_zero(std::move(row));
  }

  StageModel& model_;
  const StageProblem& stages_;
  std::vector<double> keep_;      // by stage and value
  std::vector<double> run_sums_;  // by stage and op: R summed over the stages below
  IdVector<ValueId, double> least_;
  IdVector<ValueId, ValueId> next_;
};

}  // namespace

int add_provenance_cuts(StageModel& model, const std::vector<double>& values) {
  return ProvenanceSeparator(model, values).run();
}

}  // namespace regen::search
