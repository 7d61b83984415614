#include "cli/runtime_verbs.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

namespace regen::cli {
namespace {

struct RuntimeVerb {
  const char* name;
  const char* description;
};

constexpr std::array<RuntimeVerb, 3> kVerbs{{
    {"profile", "Measure the ops of a captured step on a device"},
    {"run", "Run a captured step under a plan and measure it"},
    {"bench", "Compare a captured step with and without a plan"},
}};

Result<std::string> runtime_path() {
  std::error_code failed;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return missing("cannot find the folder of this program: " + failed.message());
  return (self.parent_path() / "regen-runtime").string();
}

}  // namespace

bool is_runtime_verb(std::string_view name) {
  return std::any_of(kVerbs.begin(), kVerbs.end(),
                     [&](const RuntimeVerb& verb) { return name == verb.name; });
}

void declare_runtime_verbs(CLI::App& app) {
  for (const RuntimeVerb& verb : kVerbs) app.add_subcommand(verb.name, verb.description);
}

Status become_runtime(char** arguments) {
  REGEN_ASSIGN(const std::string path, runtime_path());
  ::execv(path.c_str(), arguments);
  const std::string reason = errno == ENOENT ? "it was not built" : std::strerror(errno);
  return missing("'" + std::string(arguments[1]) + "' needs '" + path + "': " + reason +
                 ", expected a build with torch (REGEN_TORCH=ON)");
}

}  // namespace regen::cli
