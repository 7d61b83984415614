// The program `regen`.
#include "cli/application.h"
#include "cli/runtime_verbs.h"
#include "cli/verbs/verbs.h"

namespace regen::cli {
namespace {

void add_verbs(CLI::App& app, Action& action) {
  add_zoo(app, action);
  add_convert(app, action);
  add_plan(app, action);
  add_simulate(app, action);
  add_validate(app, action);
  add_explain(app, action);
  add_report(app, action);
  add_draw(app, action);
  add_pack(app, action);
  add_sweep(app, action);
  add_advise(app, action);
  add_max_batch(app, action);
  add_share(app, action);
  declare_runtime_verbs(app);
  add_doctor(app, action);
  add_completion(app, action);
}

}  // namespace
}  // namespace regen::cli

int main(int count, char** arguments) {
  if (count > 1 && regen::cli::is_runtime_verb(arguments[1])) {
    return regen::cli::report(regen::cli::become_runtime(arguments));
  }
  return regen::cli::run_program(count, arguments, regen::cli::add_verbs);
}
