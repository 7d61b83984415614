#include "regen/search/registry.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "regen/search/planner_list.h"

namespace regen {
namespace {

const std::vector<PlannerEntry>& entries() {
  static const std::vector<PlannerEntry> kEntries{
      {"auto", "decides everything together: the best of all, improved", plan_auto},
      {"keep_all", "keeps every value until its last use: no recomputation", plan_keep_all},
      {"keep_all_ap", "keeps the values of articulation points, recomputes between them",
       plan_keep_all_ap},
      {"last_node", "keeps only the value just made: least memory, quadratic time", plan_last_node},
      {"chen_sqrt", "keeps every k-th articulation point, k = sqrt(their number)", plan_chen_sqrt},
      {"chen_sqrt_noap", "chen_sqrt over all forward ops", plan_chen_sqrt_noap},
      {"chen_greedy", "keeps an articulation point whenever a segment has grown to b bytes",
       plan_chen_greedy},
      {"chen_greedy_noap", "chen_greedy over all forward ops", plan_chen_greedy_noap},
      {"griewank", "optimal binomial checkpointing on the chain of articulation points",
       plan_griewank},
      {"checkmate", "the proven cheapest schedule of stages, by search and integer programming",
       plan_checkmate, true},
      {"checkmate_lp", "the relaxation of checkmate, rounded to schedules within the budget",
       plan_checkmate_lp, true},
      {"lp_bound", "the relaxation's lower bound alone, without a plan", plan_lp_bound, true},
      {"chain", "optimal persistent schedule of the chain of blocks, exact in bytes", plan_chain},
      {"lower_sets", "the best chain of lower sets: blocks recomputed one by one", plan_lower_sets},
      {"lower_sets_approx", "lower_sets over one set for each op", plan_lower_sets_approx},
      {"chen_cuts", "keeps the values on which the whole graph hangs, about sqrt(n) of them",
       plan_chen_cuts},
      {"vdnn", "moves forward values to the host and back by rule, recomputes the cheap ones",
       plan_vdnn},
      {"monet", "MONeT's program: recomputation and the implementation of each op, with a bound",
       plan_monet},
      {"superneurons", "moves what dear layers make, recomputes what lies between them",
       plan_superneurons},
      {"capuchin", "moves what is away longest until the link is full, then recomputes the rest",
       plan_capuchin},
      {"str", "the proven cheapest mix of recomputation and movement, stalls priced", plan_str,
       true},
      {"str_lp", "the relaxation of str, rounded to schedules within the budget", plan_str_lp,
       true},
  };
  return kEntries;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

// These choose among all forward ops anyway, so that their _noap form is they themselves.
std::string canonical(std::string_view name) {
  const std::string lower = lower_case(name);
  if (lower == "keep_all_noap") return "keep_all";
  if (lower == "last_node_noap") return "last_node";
  return lower;
}

}  // namespace

std::span<const PlannerEntry> planner_registry() {
  return entries();
}

Result<const PlannerEntry*> find_planner(std::string_view name) {
  const std::string wanted = canonical(name);
  std::string names;
  for (const PlannerEntry& entry : entries()) {
    if (entry.name == wanted) return &entry;
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  return bad_input("unknown planner '" + std::string(name.substr(0, 60)) + "', expected one of " +
                   names);
}

}  // namespace regen
