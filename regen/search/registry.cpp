#include "regen/search/registry.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

// These choose among all forward ops anyway, so that their _noap form is they themselves.
std::string canonical(std::string_view name) {
  std::string lower = lower_case(name);
  if (lower == "keep_all_noap") return "keep_all";
  if (lower == "last_node_noap") return "last_node";
  return lower;
}

}  // namespace

void Registry::add(Planner planner) {
  const auto present = std::ranges::find(planners_, planner.name, &Planner::name);
  if (present != planners_.end()) {
    *present = std::move(planner);
  } else {
    planners_.push_back(std::move(planner));
  }
}

Result<const Planner*> Registry::find(std::string_view name) const {
  const std::string wanted = canonical(name);
  std::string names;
  for (const Planner& planner : planners_) {
    if (planner.name == wanted) return &planner;
    names += (names.empty() ? "" : ", ") + std::string(planner.name);
  }
  return bad_input("unknown planner '" + std::string(name.substr(0, 60)) + "', expected one of " +
                   names);
}

Result<std::vector<const Planner*>> Registry::find_all(std::span<const std::string> names) const {
  std::vector<const Planner*> found;
  for (const std::string& name : names) {
    REGEN_ASSIGN(const Planner* planner, find(name));
    found.push_back(planner);
  }
  return found;
}

void register_search_planners(Registry& registry) {
  const Planner planners[] = {
      {"auto", "decides everything together: the best of all, improved", plan_auto},
      {"keep_all", "keeps every value until its last use: no recomputation", plan_keep_all},
      {"keep_all_ap", "keeps the values of articulation points, recomputes between them",
       plan_keep_all_ap},
      {"chen_greedy", "keeps an articulation point whenever a segment has grown to b bytes",
       plan_chen_greedy},
      {"chen_greedy_noap", "chen_greedy over all forward ops", plan_chen_greedy_noap},
      {"chain", "optimal persistent schedule of the chain of blocks, exact in bytes", plan_chain},
      {"vdnn", "moves forward values to the host and back by rule, recomputes the cheap ones",
       plan_vdnn},
      {"capuchin", "moves what is away longest until the link is full, then recomputes the rest",
       plan_capuchin},
      {"checkmate", "the proven cheapest schedule of stages, by search and integer programming",
       plan_checkmate, true},
      {"str", "the proven cheapest mix of recomputation and movement, stalls priced", plan_str,
       true},
  };
  for (const Planner& planner : planners) registry.add(planner);
}

const Registry& search_planners() {
  static const Registry kOwn = [] {
    Registry registry;
    register_search_planners(registry);
    return registry;
  }();
  return kOwn;
}

const Planner* planner_for(const Problem& problem, std::string_view name) {
  const Registry& registry = problem.registry == nullptr ? search_planners() : *problem.registry;
  const auto planners = registry.planners();
  const auto found = std::ranges::find(planners, name, &Planner::name);
  return found == planners.end() ? nullptr : &*found;
}

const Planner& own_planner(std::string_view name) {
  const Planner* found = planner_for(Problem{}, name);
  if (found == nullptr) std::abort();  // a name in the source is wrong
  return *found;
}

}  // namespace regen::search
