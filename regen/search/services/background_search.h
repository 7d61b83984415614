// A search for a plan in its own thread, while the process does other work.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "regen/search/services/addressed_plan.h"

namespace regen::search {

class BackgroundSearch {
 public:
  // Begins at once. The graph is the problem's and is kept for as long as the search needs it; of
  // the limits the interrupt is the search's own.
  BackgroundSearch(std::shared_ptr<const Graph> graph, std::vector<const Planner*> planners,
                   Problem problem, AddressOptions addresses, Limits limits);
  // Ends the search, without waiting for its limits.
  ~BackgroundSearch();
  BackgroundSearch(const BackgroundSearch&) = delete;
  BackgroundSearch& operator=(const BackgroundSearch&) = delete;

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Asks the search to end soon with what it has.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  void wait();

  const Problem& problem() const { return problem_; }
  // What the planners found, or why they failed; of a search that has ended.
  const Result<Outcome>& outcome() const { return *outcome_; }

 private:
  void run();
  Result<Outcome> search() const;

  const std::shared_ptr<const Graph> graph_;
  const std::vector<const Planner*> planners_;
  const Problem problem_;
  const AddressOptions addresses_;
  Limits limits_;
  const pid_t process_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> ended_{false};
  std::optional<Result<Outcome>> outcome_;  // written by the thread until it has ended
  std::thread thread_;                      // last: it uses all of the above
};

// True when the plan that was found keeps the problem's limits and is cheaper than the one in use,
// as the simulator prices both.
Result<bool> is_better(const Problem& problem, const Outcome& found, const Plan& in_use);

}  // namespace regen::search
