// Runs a fuzz target over every file of the given folders, for builds without libFuzzer.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "regen/base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Clock = std::chrono::steady_clock;

bool replay(const std::filesystem::path& path, double& slowest, std::string& slowest_name) {
  const auto content = regen::read_file(path.string());
  if (!content.ok()) {
    std::fprintf(stderr, "%s\n", content.error().message.c_str());
    return false;
  }
  // Named before it runs, so that a crash shows which file it was.
  std::printf("%s\n", path.filename().c_str());
  std::fflush(stdout);
  const auto start = Clock::now();
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(content->data()), content->size());
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (seconds > slowest) {
    slowest = seconds;
    slowest_name = path.filename().string();
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t files = 0;
  double slowest = 0;
  std::string slowest_name;
  for (int i = 1; i < argc; ++i) {
    std::error_code missing;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i], missing)) {
      if (!entry.is_regular_file()) continue;
      if (!replay(entry.path(), slowest, slowest_name)) return 1;
      ++files;
    }
    if (missing) {
      std::fprintf(stderr, "cannot list '%s': %s\n", argv[i], missing.message().c_str());
      return 1;
    }
  }
  std::printf("%zu files, the slowest %s with %.3f s\n", files, slowest_name.c_str(), slowest);
  return files > 0 ? 0 : 1;
}
