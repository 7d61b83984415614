#include "regen/published/monet/monet_neighbourhoods.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace regen::published {
namespace {

// Counted work of one neighbourhood; most need less.
constexpr std::int64_t kNeighbourhoodWork = 6'000'000;
constexpr std::int64_t kNeighbourhoodSetUpWork = 1000;  // of setting the model up

}  // namespace

MonetNeighbourhoods::MonetNeighbourhoods(const MonetModel& model, const MonetRelaxation& relaxation)
    : model_(model), relaxation_(relaxation) {}

MonetSchedule MonetNeighbourhoods::rated(MonetStorage storage) const {
  MonetStageRater rater(model_);
  MonetSchedule schedule{std::move(storage)};
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    const MonetRating rating = rater.rate(t, std::as_const(schedule.storage).row(t),
                                          std::as_const(schedule.storage).row(t + 1), 1e6);
    schedule.ticks += rating.ticks;
    schedule.excess += rating.excess;
  }
  return schedule;
}

std::vector<search::ColumnValue> MonetNeighbourhoods::fixed(
    const Neighbourhood& neighbourhood, const std::vector<double>& values) const {
  const std::size_t nodes = model_.num_nodes();
  const auto changes = [&](std::size_t t) {
    const auto row = neighbourhood.begin() + static_cast<std::ptrdiff_t>(t * nodes);
    return std::find(row, row + static_cast<std::ptrdiff_t>(nodes), 1) !=
           row + static_cast<std::ptrdiff_t>(nodes);
  };
  std::vector<char> free(values.size(), 0);
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    if (!changes(t) && !changes(t + 1)) continue;
    const auto [begin, end] = relaxation_.stage_columns(t);
    std::fill(free.begin() + begin, free.begin() + end, 1);
    for (std::size_t i = 0; i < nodes; ++i) {
      const int stored = relaxation_.stored_column(t + 1, i);
      if (stored >= 0) free[static_cast<std::size_t>(stored)] = neighbourhood[(t + 1) * nodes + i];
    }
  }
  std::vector<search::ColumnValue> result;
  for (std::size_t c = 0; c < values.size(); ++c) {
    if (!free[c]) result.push_back({static_cast<int>(c), values[c]});
  }
  return result;
}

bool MonetNeighbourhoods::decide(const Neighbourhood& neighbourhood, MonetSchedule& schedule,
                                 Effort& effort) {
  search::MipOptions options;
  options.cutoff = static_cast<double>(schedule.ticks) - 0.5;
  options.fixed = fixed(neighbourhood, relaxation_.values_of(schedule.storage));
  Effort own(Limits{.seconds = effort.seconds_left(),
                    .work = std::min(kNeighbourhoodWork, effort.work_left()),
                    .interrupt = effort.limits().interrupt,
                    .enough = effort.limits().enough});
  const search::ModelAnswer answer = relaxation_.program().solve(options, own);
  effort.add(own.work() + kNeighbourhoodSetUpWork);
  if (answer.values.empty()) return false;
  MonetSchedule found = rated(relaxation_.storage_of(answer.values, 0.5));
  if (found.excess > 0 || found.ticks >= schedule.ticks) return false;
  schedule = std::move(found);
  return true;
}

bool MonetNeighbourhoods::mix(MonetSchedule& schedule, const MonetStorage& other, Effort& effort) {
  const std::size_t nodes = model_.num_nodes();
  Neighbourhood neighbourhood((model_.num_stages() + 1) * nodes, 0);
  for (std::size_t t = 1; t <= model_.num_stages(); ++t) {
    for (std::size_t i = 0; i < nodes; ++i) {
      neighbourhood[t * nodes + i] = schedule.storage.stored(t, i) != other.stored(t, i);
    }
  }
  return decide(neighbourhood, schedule, effort);
}

}  // namespace regen::published
