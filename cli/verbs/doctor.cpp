// regen doctor: is this installation whole? torch is Python's, so the checks are (python/regen_doctor);
// this program passes on what is known here alone, and becomes them.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "cli/options/options.h"
#include "cli/python/interpreter.h"
#include "cli/verbs/verbs.h"
#include "regen/base/json.h"
#include "regen/base/progress/progress_line.h"
#include "regen/share/protocol/address.h"

namespace regen::cli {
namespace {

struct DoctorArguments {
  bool json = false;
};

Result<std::filesystem::path> own_path() {
  std::error_code failed;
  auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return missing("cannot find the folder of this program: " + failed.message());
  return self;
}

Status run_doctor(const DoctorArguments& arguments) {
  REGEN_ASSIGN(const std::filesystem::path self, own_path());
  const std::string runtime = (self.parent_path() / "regen-runtime").string();
  const Json program{{"version", REGEN_VERSION},
                     {"path", self.string()},
                     {"runtime", ::access(runtime.c_str(), X_OK) == 0},
                     {"socket", share::default_socket()}};
  const std::string facts = program.dump(-1, ' ', true, Json::error_handler_t::replace);
  ::setenv("REGEN_DOCTOR_PROGRAM", facts.c_str(), 1);
  const std::string path = python_path();
  ::setenv("PYTHONPATH", path.substr(path.find('=') + 1).c_str(), 1);
  ::setenv("PYTHONDONTWRITEBYTECODE", "1", 0);
  const std::string python = python_interpreter();
  end_progress_line();
  ::execlp(python.c_str(), python.c_str(), "-m", "regen_doctor",
           arguments.json ? "--json" : nullptr, nullptr);
  return missing("cannot run '" + python + "': " + std::strerror(errno) +
                 ", expected a Python interpreter; name one in REGEN_PYTHON");
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  CLI::App& verb =
      add_verb(app, "doctor", "Examine this installation and say what to do", "  regen doctor");
  auto arguments = std::make_shared<DoctorArguments>();
  add_json(verb, arguments->json);
  set_action<DoctorArguments>(verb, action, arguments, run_doctor);
}

}  // namespace regen::cli
