// Plans VGG19 within half of the memory of keeping everything and prints its time.
#include <cstdio>

#include "regen/cost/cost_model.h"
#include "regen/models/zoo.h"
#include "regen/search/judge.h"
#include "regen/search/registry.h"

int main() {
  const auto device = regen::find_device("v100-16");
  const auto layers =
      regen::zoo_graph("vgg19", {.batch = 64, .backward = regen::BackwardStyle::kExact});
  if (!device || !layers) return 2;
  const auto graph =
      regen::apply_costs(*layers, *regen::make_roofline_model(*device, regen::Precision::kFp32));
  if (!graph) return 2;
  regen::search::Problem problem{.graph = &*graph, .link = device->link};
  const auto all = regen::search::solve(regen::search::own_planner("keep_all"), problem);
  if (!all) return 2;
  problem.budget = all->simulation.peak_bytes / 2;
  const auto half =
      regen::search::solve(regen::search::own_planner("auto"), problem, {.work = 1'000'000});
  if (!half || !half->plan) return 1;
  std::printf("VGG19: %.1f ms in %.2f GB, %.1f ms in %.2f GB\n", all->simulation.cost * 1e3,
              static_cast<double>(all->simulation.peak_bytes) / 1e9, half->simulation.cost * 1e3,
              static_cast<double>(half->simulation.peak_bytes) / 1e9);
}
