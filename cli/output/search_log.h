// The progress of a long search, line by line on standard error.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "regen/base/progress/progress.h"
#include "regen/base/units.h"
#include "regen/search/planner.h"

namespace regen::cli {

// One line whenever the best cost or the bound improves, at most two in a second.
class SearchLog {
 public:
  // `asked`: the user has asked for these lines. `progress` gets all that is reported, and must outlive
  // the log.
  SearchLog(CostUnit unit, bool asked, Progress& progress);
  ~SearchLog();  // writes what the last line did not say yet
  SearchLog(const SearchLog&) = delete;
  SearchLog& operator=(const SearchLog&) = delete;

  // Empty when nothing is shown, so that planners need not call it. The log must outlive it.
  search::SearchObserver observer();

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    double seconds = 0;
    std::optional<double> incumbent;
    double lower_bound = 0;
  };

  void note(double seconds, std::optional<double> incumbent, double lower_bound);
  void write();
  std::string line() const;

  CostUnit unit_;
  bool asked_;
  Progress& progress_;
  bool news_ = false;  // something that no line has said
  State state_;
  Clock::time_point last_;
  std::mutex mutex_;
};

}  // namespace regen::cli
