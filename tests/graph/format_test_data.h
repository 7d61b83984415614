// Where the published graphs and instances lie, for tests that compare with them.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "regen/base/file.h"

namespace regen {

// $REGEN_REFERENCE_DATA, or the folder beside the repository.
inline std::filesystem::path reference_data(const std::string& name) {
  if (const char* folder = std::getenv("REGEN_REFERENCE_DATA")) {
    return std::filesystem::path(folder) / name;
  }
  const auto repository = std::filesystem::path(__FILE__).parent_path() / "../..";
  return (repository / "../shared/reference/data" / name).lexically_normal();
}

inline bool has_reference_data(const std::string& name) {
  return std::filesystem::exists(reference_data(name));
}

inline std::string read_reference(const std::string& name) {
  auto text = read_file(reference_data(name).string());
  return text.ok() ? *text : std::string();
}

}  // namespace regen
