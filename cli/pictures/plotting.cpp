#include "cli/pictures/plotting.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "cli/pictures/child.h"
#include "cli/python/interpreter.h"
#include "regen/base/file.h"

namespace regen::cli {
namespace {

// Exit status of regen_plot when a library is not there.
constexpr int kLibraryMissing = 3;

}  // namespace

Result<std::string> picture_format(const std::string& path,
                                   const std::vector<std::string>& allowed) {
  std::string extension = std::filesystem::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string names;
  for (const std::string& format : allowed) {
    if (extension == "." + format) return format;
    names += (names.empty() ? "." : format == allowed.back() ? " or ." : ", .") + format;
  }
  return bad_input("unknown picture format of '" + path + "', expected a name that ends in " +
                   names);
}

Status draw_plot(const std::string& kind, const Json& data, const std::string& format,
                 const std::string& path) {
  const std::string python = python_interpreter();
  const std::string input = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  REGEN_ASSIGN(const ChildResult child,
               run_child({python, "-m", "regen_plot", kind, format}, input,
                         {python_path(), "MPLBACKEND=Agg", "PYTHONDONTWRITEBYTECODE=1"}));
  if (child.status == 0 && !child.output.empty()) return write_file(path, child.output);
  const std::string reason = last_line(child.errors);
  if (child.status == kLibraryMissing) return missing("cannot draw '" + path + "': " + reason);
  return missing("cannot draw '" + path + "': " + python + " failed with status " +
                 std::to_string(child.status) + (reason.empty() ? "" : ": " + reason) +
                 "; `regen doctor` examines it, REGEN_PYTHON names another");
}

}  // namespace regen::cli
