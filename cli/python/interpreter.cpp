#include "cli/python/interpreter.h"

#include <unistd.h>

#include <cstdlib>

namespace regen::cli {

std::string python_interpreter() {
  const char* chosen = std::getenv("REGEN_PYTHON");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  return ::access(REGEN_PYTHON_DEFAULT, X_OK) == 0 ? REGEN_PYTHON_DEFAULT : "python3";
}

std::string python_path() {
  const char* old = std::getenv("PYTHONPATH");
  const std::string rest = old != nullptr && *old != '\0' ? ":" + std::string(old) : "";
  return "PYTHONPATH=" REGEN_PYTHON_FOLDER + rest;
}

}  // namespace regen::cli
