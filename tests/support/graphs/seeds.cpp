#include "tests/support/graphs/seeds.h"

#include <cstdlib>

namespace regen::testing {

bool exhaustive() {
  return std::getenv("REGEN_EXHAUSTIVE") != nullptr;
}

std::uint64_t first_seed() {
  const char* text = std::getenv("REGEN_SEED");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

}  // namespace regen::testing
