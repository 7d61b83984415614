#include "regen/published/planner_list.h"

namespace regen::published {

void register_published_planners(search::Registry& registry) {
  const search::Planner planners[] = {
      {"auto", "decides everything together: the best of all, improved", plan_auto},
      {"checkmate", "the proven cheapest schedule of stages, by search and integer programming",
       plan_checkmate, true},
      {"lp_bound", "the relaxation's lower bound alone, without a plan", plan_lp_bound, true},
      {"str", "the proven cheapest mix of recomputation and movement, stalls priced", plan_str,
       true},
      {"checkmate_lp", "the relaxation of checkmate, rounded to schedules within the budget",
       plan_checkmate_lp, true},
      {"str_lp", "the relaxation of str, rounded to schedules within the budget", plan_str_lp,
       true},
      {"chen_sqrt", "keeps every k-th articulation point, k = sqrt(their number)", plan_chen_sqrt},
      {"chen_sqrt_noap", "chen_sqrt over all forward ops", plan_chen_sqrt_noap},
      {"griewank", "optimal binomial checkpointing on the chain of articulation points",
       plan_griewank},
      {"last_node", "keeps only the value just made: least memory, quadratic time", plan_last_node},
      {"lower_sets", "the best chain of lower sets: blocks recomputed one by one", plan_lower_sets},
      {"lower_sets_approx", "lower_sets over one set for each op", plan_lower_sets_approx},
      {"chen_cuts", "keeps the values on which the whole graph hangs, about sqrt(n) of them",
       plan_chen_cuts},
      {"monet", "MONeT's program: recomputation and the implementation of each op, with a bound",
       plan_monet},
      {"superneurons", "moves what expensive layers make, recomputes what lies between them",
       plan_superneurons},
  };
  for (const search::Planner& planner : planners) registry.add(planner);
}

const search::Registry& every_planner() {
  static const search::Registry kEvery = [] {
    search::Registry registry;
    search::register_search_planners(registry);
    register_published_planners(registry);
    return registry;
  }();
  return kEvery;
}

}  // namespace regen::published
