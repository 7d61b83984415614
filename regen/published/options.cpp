#include "regen/published/options.h"

#include <array>

namespace regen::published {

Options options_of(const search::Problem& problem) {
  const auto* given = std::any_cast<Options>(&problem.options.extra);
  return given == nullptr ? Options{} : *given;
}

template <>
std::span<const std::string_view> choice_names<ImposedSchedule>() {
  static constexpr std::array<std::string_view, 3> kNames{"frontier", "cover_all", "cover_last"};
  return kNames;
}

template <>
std::span<const std::string_view> choice_names<Preference>() {
  static constexpr std::array<std::string_view, 2> kNames{"time", "memory"};
  return kNames;
}

template <>
std::span<const std::string_view> choice_names<PlanningModel>() {
  static constexpr std::array<std::string_view, 2> kNames{"liveness", "published"};
  return kNames;
}

template <>
std::span<const std::string_view> choice_names<Rounding>() {
  static constexpr std::array<std::string_view, 4> kNames{"sweep", "half", "random_threshold",
                                                          "randomised"};
  return kNames;
}

}  // namespace regen::published
