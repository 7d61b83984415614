// A hash of text, equal on every machine, for names of files: nothing that must resist an attack.
#pragma once

#include <cstdint>
#include <string_view>

namespace regen {

// FNV-1a, continued from `hash`.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 14695981039346656037ULL) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace regen
