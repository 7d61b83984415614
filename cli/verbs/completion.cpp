// regen completion: a script that teaches a shell the verbs, options, planners and models.
#include "cli/verbs/completion.h"

#include <map>
#include <memory>
#include <string>

#include "cli/options/options.h"
#include "cli/options/planner_options.h"
#include "cli/options/planners.h"
#include "cli/output/output.h"
#include "cli/verbs/verbs.h"
#include "regen/cost/device.h"
#include "regen/models/zoo.h"
#include "regen/search/registry.h"

namespace regen::cli {
namespace {

struct CompletionArguments {
  const CLI::App* app = nullptr;
  std::string shell;
};

std::vector<std::string> planner_words() {
  std::vector<std::string> words;
  for (const search::Planner& planner : published::every_planner().planners())
    words.emplace_back(planner.name);
  return words;
}

std::vector<std::string> device_words() {
  std::vector<std::string> words;
  for (const Device& device : builtin_devices()) words.push_back(device.name);
  return words;
}

// What may follow an option, by its name; the same name means the same thing in every verb.
std::vector<std::string> value_words(const std::string& option) {
  static const std::map<std::string, std::vector<std::string>> kWords{
      {"--planner", planner_words()},
      {"--planners", planner_words()},
      {"--reference", planner_words()},
      {"--device", device_words()},
      {"--backward", {"checkmate", "exact"}},
      {"--rules", {"default", "artifact", "correct"}},
      {"--optimizer", {"none", "sgd", "momentum", "adam"}},
      {"--cost", {"graph", "flop", "roofline", "roofline:fp16", "table:"}},
      {"--to", {"regen", "lower-sets", "monet", "dot"}},
      {"--budgets", {"auto"}},
  };
  const auto found = kWords.find(option);
  return found == kWords.end() ? planner_option_words(option) : found->second;
}

CompletionOption describe(const CLI::Option& option) {
  CompletionOption result{.description = option.get_description()};
  for (const std::string& name : option.get_snames()) result.spellings.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) result.spellings.push_back("--" + name);
  result.takes_value = option.get_items_expected_max() > 0;
  if (!result.spellings.empty()) result.values = value_words(result.spellings.back());
  return result;
}

CompletionVerb describe(const CLI::App& verb) {
  CompletionVerb result{.name = verb.get_name(), .description = verb.get_description()};
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_positional()) {
      const std::string name = option->get_name();
      result.takes_graph |= name == "GRAPH" || name == "MODEL";
      if (name == "NAME") {
        for (const ZooInfo& info : zoo_list()) result.words.push_back(info.name);
      }
      if (name == "SHELL") result.words = {"bash", "zsh", "fish"};
      continue;
    }
    result.options.push_back(describe(*option));
  }
  for (const CLI::App* inner : verb.get_subcommands({})) result.words.push_back(inner->get_name());
  return result;
}

Status run_completion(const CompletionArguments& arguments) {
  const std::vector<CompletionVerb> verbs = completion_verbs(*arguments.app);
  if (arguments.shell == "bash") return print(bash_completion(verbs));
  if (arguments.shell == "zsh") return print(zsh_completion(verbs));
  return print(fish_completion(verbs));
}

}  // namespace

std::vector<std::string> zoo_words() {
  std::vector<std::string> words;
  for (const ZooInfo& info : zoo_list()) {
    if (info.name != "chain:N") words.push_back("zoo:" + info.name);
  }
  words.push_back("zoo:chain:");
  return words;
}

std::vector<CompletionVerb> completion_verbs(const CLI::App& app) {
  std::vector<CompletionVerb> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(describe(*verb));
  return verbs;
}

void add_completion(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "completion", "Print a completion script for a shell",
                            "  source <(regen completion bash)\n"
                            "  regen completion zsh > ~/.zfunc/_regen\n"
                            "  regen completion fish > ~/.config/fish/completions/regen.fish");
  auto arguments = std::make_shared<CompletionArguments>();
  arguments->app = &app;
  add_parsed(verb, "SHELL", arguments->shell,
             one_of<std::string>({{"bash", "bash"}, {"zsh", "zsh"}, {"fish", "fish"}}), "",
             "bash, zsh or fish")
      ->required();
  set_action<CompletionArguments>(verb, action, arguments, run_completion);
}

}  // namespace regen::cli
