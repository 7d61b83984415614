#include "regen/published/options.h"

#include <array>

namespace regen::published {

Options options_of(const search::Problem& problem) {
  const auto* given = std::any_cast<Options>(&problem.options.extra);
  return given == nullptr ? Options{} : *given;
}

}  // namespace regen::published

namespace regen::search {

template <>
std::span<const std::string_view> choice_names<published::ImposedSchedule>() {
  static constexpr std::array<std::string_view, 3> kNames{"frontier", "cover_all", "cover_last"};
  return kNames;
}

template <>
std::span<const std::string_view> choice_names<published::Preference>() {
  static constexpr std::array<std::string_view, 2> kNames{"time", "memory"};
  return kNames;
}

template <>
std::span<const std::string_view> choice_names<published::PlanningModel>() {
  static constexpr std::array<std::string_view, 2> kNames{"liveness", "published"};
  return kNames;
}

}  // namespace regen::search
