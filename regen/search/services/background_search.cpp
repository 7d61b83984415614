#include "regen/search/services/background_search.h"

#include <sys/resource.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "regen/base/progress/progress.h"
#include "regen/search/comparison.h"
#include "regen/search/search_progress.h"

namespace regen::search {
namespace {

// The training comes first.
constexpr int kNice = 10;

Problem on_graph(Problem problem, const Graph& graph) {
  problem.graph = &graph;
  return problem;
}

}  // namespace

BackgroundSearch::BackgroundSearch(std::shared_ptr<const Graph> graph,
                                   std::vector<const Planner*> planners, Problem problem,
                                   AddressOptions addresses, Limits limits)
    : graph_(std::move(graph)),
      planners_(std::move(planners)),
      problem_(on_graph(std::move(problem), *graph_)),
      addresses_(addresses),
      limits_(limits),
      process_(getpid()) {
  limits_.interrupt = &stopped_;
  thread_ = std::thread([this] { run(); });
}

BackgroundSearch::~BackgroundSearch() {
  stop();
  if (process_ == getpid()) {
    wait();
  } else {
    thread_.detach();  // a child that was forked has this object, but not the thread
  }
}

void BackgroundSearch::wait() {
  if (process_ == getpid() && thread_.joinable()) thread_.join();
}

void BackgroundSearch::run() {
  setpriority(PRIO_PROCESS, 0, kNice);  // on Linux, of the thread and of those that it starts
  outcome_ = search();
  ended_.store(true, std::memory_order_release);
}

// No caller above this thread could catch what a planner throws.
Result<Outcome> BackgroundSearch::search() const {
  try {
    Progress progress({.stage = "improve", .base = graph_->base_cost(), .background = true});
    Problem watched = problem_;
    watched.observer = observer_of(progress);
    auto found = best_addressed(planners_, watched, addresses_, limits_);
    settle(progress, found);
    return found;
  } catch (const std::exception& error) {
    return bad_input(std::string("the search for a better plan failed: ") + error.what());
  }
}

Result<bool> is_better(const Problem& problem, const Outcome& found, const Plan& in_use) {
  if (!has_plan(found)) return false;
  REGEN_ASSIGN(const Simulation now, simulate(*problem.graph, in_use, {.link = problem.link}));
  return clearly_better(problem, found.simulation, now);
}

}  // namespace regen::search
