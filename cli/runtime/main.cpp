// The program `regen-runtime`: the verbs of `regen` that run captured steps. Users call regen,
// which becomes this program.
#include "cli/application.h"
#include "cli/runtime/verbs.h"

namespace regen::cli {
namespace {

void add_verbs(CLI::App& app, Action& action) {
  add_profile(app, action);
  add_run(app, action);
  add_bench(app, action);
}

}  // namespace
}  // namespace regen::cli

int main(int count, char** arguments) {
  return regen::cli::run_program(count, arguments, regen::cli::add_verbs);
}
