#include "cli/output/search_log.h"

#include <algorithm>
#include <cstdio>

#include "cli/output/output.h"
#include "regen/base/progress/progress_line.h"
#include "regen/search/search_progress.h"

namespace regen::cli {
namespace {

constexpr std::chrono::milliseconds kPause{500};

}  // namespace

SearchLog::SearchLog(CostUnit unit, bool asked, Progress& progress)
    : unit_(unit), asked_(asked), progress_(progress) {}

SearchLog::~SearchLog() {
  if (news_) write();
}

search::SearchObserver SearchLog::observer() {
  if (!asked_) return search::observer_of(progress_);
  return [this](double seconds, std::optional<double> incumbent, double lower_bound) {
    progress_.improve(incumbent, lower_bound);
    note(seconds, incumbent, lower_bound);
  };
}

void SearchLog::note(double seconds, std::optional<double> incumbent, double lower_bound) {
  const std::lock_guard lock(mutex_);
  const bool cheaper = incumbent && (!state_.incumbent || *incumbent < *state_.incumbent);
  const bool closer = lower_bound > state_.lower_bound;
  if (!cheaper && !closer) return;
  if (cheaper) state_.incumbent = incumbent;
  state_.lower_bound = std::max(state_.lower_bound, lower_bound);
  state_.seconds = seconds;
  news_ = true;
  if (Clock::now() - last_ >= kPause) write();
}

void SearchLog::write() {
  const ProgressPause pause;
  std::fprintf(stderr, "%s\n", line().c_str());
  last_ = Clock::now();
  news_ = false;
}

std::string SearchLog::line() const {
  std::string text = decimals(state_.seconds, 1) + " s: ";
  text += state_.incumbent ? "best " + full_cost(*state_.incumbent, unit_) : "no plan yet";
  // A bound of 0 says nothing: costs are not negative.
  if (state_.lower_bound <= 0) return text;
  text += ", at least " + full_cost(state_.lower_bound, unit_);
  if (!state_.incumbent || *state_.incumbent <= 0) return text;
  const double gap = std::max(0.0, 1 - state_.lower_bound / *state_.incumbent);
  return text + ", gap " + decimals(100 * gap, 2) + " %";
}

}  // namespace regen::cli
