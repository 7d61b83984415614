// Options of the published planners, beside those of every planner: they travel in
// search::PlannerOptions::extra.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "regen/published/monet/monet_mode.h"
#include "regen/search/planner.h"

namespace regen::published {

// Which schedules the integer model may choose from: each op runs for the first time in a stage
// of its own (the published one), or the stages only have to run every op, or only the last one.
enum class ImposedSchedule : std::uint8_t { kFrontier, kCoverAll, kCoverLast };

// Of all strategies within the budget, lower sets can take the fastest, or the one that caches
// least and so peaks lowest once values are released at their last use.
enum class Preference : std::uint8_t { kTime, kMemory };

// How memory, time and overhead are counted while planning: as the judge does, or by the formulas
// of the paper (lower sets, str).
enum class PlanningModel : std::uint8_t { kLiveness, kPublished };

struct Options {
  ImposedSchedule schedule = ImposedSchedule::kFrontier;  // checkmate, lp_bound
  Preference prefer = Preference::kTime;                  // lower sets
  PlanningModel model = PlanningModel::kLiveness;         // lower sets, str
  MonetMode monet_mode;                                   // monet
};

// Those of the problem, or the defaults.
Options options_of(const search::Problem& problem);

}  // namespace regen::published

namespace regen::search {

template <>
std::span<const std::string_view> choice_names<published::ImposedSchedule>();
template <>
std::span<const std::string_view> choice_names<published::Preference>();
template <>
std::span<const std::string_view> choice_names<published::PlanningModel>();

}  // namespace regen::search
