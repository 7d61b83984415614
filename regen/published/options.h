// Options of the published planners, beside those of every planner: they travel in
// search::PlannerOptions::extra.
#pragma once

#include <cstdint>
#include <optional>
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

// How a fractional schedule becomes a whole one.
enum class Rounding : std::uint8_t { kSweep, kHalf, kRandomThreshold, kRandomised };

struct Options {
  ImposedSchedule schedule = ImposedSchedule::kFrontier;  // checkmate, lp_bound
  Preference prefer = Preference::kTime;                  // lower sets
  PlanningModel model = PlanningModel::kLiveness;         // lower sets, str
  Rounding rounding = Rounding::kSweep;                   // checkmate_lp
  int samples = 100;                                      // checkmate_lp: random draws
  std::optional<std::int64_t> slots;  // griewank: this many checkpoints; absent: tries all
  MonetMode monet_mode;               // monet
};

// Those of the problem, or the defaults.
Options options_of(const search::Problem& problem);

// The names in the command line of the values of a choice, in their order.
template <class Choice>
std::span<const std::string_view> choice_names();
template <>
std::span<const std::string_view> choice_names<ImposedSchedule>();
template <>
std::span<const std::string_view> choice_names<Preference>();
template <>
std::span<const std::string_view> choice_names<PlanningModel>();
template <>
std::span<const std::string_view> choice_names<Rounding>();

}  // namespace regen::published
