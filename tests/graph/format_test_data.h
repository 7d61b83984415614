// What the tests of the formats share: where the published graphs and instances lie, and small
// changes to a text.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "regen/base/file.h"
#include "regen/graph/graph.h"

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

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

inline std::vector<std::size_t> indices(std::span<const TensorId> list) {
  std::vector<std::size_t> out;
  for (TensorId t : list) out.push_back(t.index());
  return out;
}

}  // namespace regen
