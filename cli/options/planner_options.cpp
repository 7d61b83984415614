#include "cli/options/planner_options.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "cli/options/options.h"
#include "cli/options/planners.h"
#include "regen/published/checkmate/artifact_accounting.h"

namespace regen::cli {
namespace {

constexpr std::int64_t kAnyInteger = std::numeric_limits<std::int64_t>::max();

// Reads a number for a field narrower than 64 bits, or without a sign.
template <typename T>
auto number_as(std::int64_t low, std::int64_t high) {
  return [read = whole_number(low, high)](std::string_view text) -> Result<T> {
    REGEN_ASSIGN(const std::int64_t value, read(text));
    return static_cast<T>(value);
  };
}

Result<double> parse_gap(std::string_view text) {
  const auto gap = parse_double(text);
  if (gap.ok() && *gap >= 0 && *gap < 1) return *gap;
  return bad_input("bad gap '" + std::string(text.substr(0, 60)) +
                   "', expected a number from 0 to less than 1");
}

template <typename Choice>
std::vector<std::string> words_of() {
  const std::span<const std::string_view> names = published::choice_names<Choice>();
  return {names.begin(), names.end()};
}

// One of the names of a choice, in the order of its values.
template <typename Choice>
CLI::Option* add_choice(CLI::App& verb, const std::string& name, Choice& target,
                        const std::string& description) {
  std::vector<std::pair<std::string, Choice>> choices;
  for (const std::string& word : words_of<Choice>()) {
    choices.emplace_back(word, static_cast<Choice>(choices.size()));
  }
  return add_parsed(verb, name, target, one_of<Choice>(std::move(choices)), "NAME", description);
}

Result<search::Ablation> parse_ablation(std::string_view text) {
  REGEN_ASSIGN(const std::vector<std::string> names, split_list(text));
  return search::Ablation::parse(names);
}

// Which planners take an option; those that are not listed are for all.
struct OptionOwners {
  std::string_view option;
  std::vector<std::string_view> planners;
};

const std::vector<OptionOwners>& option_owners() {
  static const std::vector<OptionOwners> kOwners{
      {"--greedy-points", {"chen_greedy", "chen_greedy_noap"}},
      {"--slots", {"griewank"}},
      {"--keep-gradients", {"checkmate", "checkmate_lp", "lp_bound", "str", "str_lp", "auto"}},
      {"--keep-order", {"auto"}},
      {"--ablate", {"auto"}},
      {"--gap", {"checkmate", "str", "monet"}},
      {"--schedule", {"checkmate", "lp_bound"}},
      {"--rounding", {"checkmate_lp"}},
      {"--samples", {"checkmate_lp"}},
      {"--prefer", {"lower_sets", "lower_sets_approx", "chen_cuts"}},
      {"--model", {"lower_sets", "lower_sets_approx", "chen_cuts", "str"}},
      {"--mode", {"monet"}},
      {"--seed", {"checkmate", "checkmate_lp", "str", "str_lp", "monet", "auto"}},
  };
  return kOwners;
}

std::string joined(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

}  // namespace

search::PlannerOptions PlannerArguments::resolved() const {
  search::PlannerOptions resolved = options;
  resolved.accounting = as_artifact ? &published::artifact_accounting() : nullptr;
  resolved.extra = published;
  return resolved;
}

std::string_view PlannerArguments::accounting_name() const {
  return as_artifact ? "checkmate" : "plain";
}

Status PlannerArguments::check(std::span<const std::string> planners) const {
  std::vector<std::string_view> asked;
  for (const std::string& name : planners) {
    REGEN_ASSIGN(const search::Planner* planner, find_planner(name));
    asked.push_back(planner->name);
  }
  for (const OptionOwners& owners : option_owners()) {
    if (verb->get_option(std::string(owners.option))->count() == 0) continue;
    const bool taken = std::ranges::any_of(asked, [&](std::string_view name) {
      return std::ranges::find(owners.planners, name) != owners.planners.end();
    });
    if (taken) continue;
    return bad_input(std::string(owners.option) + ": planner " + joined(asked) +
                     " does not take it, expected " + joined(owners.planners));
  }
  return {};
}

void add_planner_options(CLI::App& verb, PlannerArguments& arguments) {
  arguments.verb = &verb;
  search::PlannerOptions& options = arguments.options;
  published::Options& published = arguments.published;
  add_parsed(verb, "--accounting", arguments.as_artifact,
             one_of<bool>({{"plain", false}, {"checkmate", true}}), "NAME",
             "plain (default), or checkmate: as the published artifact counts");
  add_parsed(verb, "--greedy-points", options.greedy_points, number_as<int>(1, 100'000), "N",
             "chen_greedy: how many segment sizes are tried (default 60)");
  add_parsed(verb, "--slots", published.slots, whole_number(1, 1'000'000'000), "N",
             "griewank: how many checkpoints are held (default: tries all)");
  verb.add_flag_callback(
      "--keep-gradients", [&options] { options.recompute_gradients = false; },
      "checkmate: ops after the forward pass run only once");
  verb.add_flag("--keep-order", options.keep_order,
                "auto: ops first run in the order of the graph");
  add_parsed(verb, "--ablate", arguments.ablation, parse_ablation, "NAME,..",
             "auto: search without these rows, planners, rounds or parts of the portfolio");
  add_parsed(verb, "--gap", options.gap, parse_gap, "X",
             "Exact planners stop when the gap is this small (default 0)");
  add_choice(verb, "--schedule", published.schedule,
             "checkmate: which schedules are searched: frontier (default), cover_all, cover_last");
  add_choice(verb, "--rounding", published.rounding,
             "checkmate_lp: sweep (default), half, random_threshold or randomised");
  add_parsed(verb, "--samples", published.samples, number_as<int>(1, 1'000'000), "N",
             "checkmate_lp: random draws (default 100)");
  add_choice(verb, "--prefer", published.prefer,
             "lower sets: time (default), or memory: cache little, recompute much");
  add_choice(verb, "--model", published.model,
             "lower sets, str: count liveness (default), or as published while planning");
  add_parsed(
      verb, "--mode", published.monet_mode, published::parse_monet_mode, "WORDS",
      "monet: all (default), or words of inplace, conv, multiway, newnode, normal and ablation "
      "joined by _");
  add_parsed(verb, "--seed", options.seed, number_as<std::uint64_t>(0, kAnyInteger), "N",
             "For planners that draw random numbers (default 0)");
}

void add_limits(CLI::App& verb, Limits& limits) {
  add_parsed(verb, "--time-limit", limits.seconds, parse_seconds, "SECONDS",
             "Stop a search after this time; 0: only what is found at once");
  add_parsed(verb, "--work-limit", limits.work, whole_number(1, kAnyInteger), "N",
             "Stop a search after this much counted work: the same answer on every machine");
}

Limits limits_or(const Limits& asked, std::int64_t work) {
  Limits limits = asked;
  const Limits none;
  if (limits.seconds == none.seconds && limits.work == none.work) limits.work = work;
  return limits;
}

std::vector<std::string> planner_option_words(const std::string& option) {
  if (option == "--accounting") return {"plain", "checkmate"};
  if (option == "--schedule") return words_of<published::ImposedSchedule>();
  if (option == "--rounding") return words_of<published::Rounding>();
  if (option == "--prefer") return words_of<published::Preference>();
  if (option == "--model") return words_of<published::PlanningModel>();
  return {};
}

}  // namespace regen::cli
