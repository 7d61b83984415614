// The part of a session that searches for a better plan while the steps run under the one in use.
#include <algorithm>
#include <sstream>
#include <utility>

#include "regen/session/running_searches.h"
#include "regen/session/session.h"

namespace regen::session {
namespace {

std::string one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

}  // namespace

Status Session::search_beside() {
  const double seconds = settings_.background_seconds(recorded_.on_cpu());
  if (seconds <= 0 || !planned_ || searched_for_ == planned_for_) return {};
  stop_search();  // what it looks for is of no use any more
  searched_for_ = planned_for_;
  const PlanReport& report = planned_->report();
  if (report.proven_best() || report.origin.searched >= seconds) return {};
  const Status begun = begin_search();
  if (!begun.ok()) warn_of_search(begun.error());
  return {};
}

Status Session::begin_search() {
  REGEN_ASSIGN(PlanRequest wanted, request());
  REGEN_ASSIGN(search::Problem problem, problem_of(wanted));
  search_ = std::make_shared<search::BackgroundSearch>(
      recorded_.shared_graph(), std::move(wanted.planners), std::move(problem),
      recorded_.addresses(), settings_.background_limits(recorded_.on_cpu()));
  note_search(search_);
  return {};
}

Result<search::Problem> Session::problem_of(const PlanRequest& wanted) const {
  REGEN_ASSIGN(const Link link, recorded_.link().get());
  search::Problem problem = recorded_.problem(wanted.budget, wanted.host_budget, link);
  problem.registry = wanted.registry;
  return problem;
}

void Session::warn_of_search(const Error& error) {
  warnings_.push_back(one_line(error.message) + "; the plan in use stays");
}

void Session::stop_search() {
  if (search_) search_->stop();
  search_.reset();
  searched_for_.clear();
}

Result<bool> Session::take_better_plan(std::int64_t number) {
  if (!search_ || !search_->ended() || searched_for_ != planned_for_) return false;
  const auto ended = std::exchange(search_, nullptr);
  const auto before = planned_->shared_report();
  const Status judged = judge_search(*ended, number);
  if (!judged.ok()) {
    warn_of_search(judged.error());
    return false;
  }
  REGEN_ASSIGN(const bool may_keep, fits());
  if (may_keep) {
    REGEN_ASSIGN(const PlanKey wanted, key());
    save(wanted, *planned_);
  }
  return planned_->report().cost != before->cost;
}

Status Session::judge_search(const search::BackgroundSearch& search, std::int64_t number) {
  if (!search.outcome().ok()) return search.outcome().error();
  const search::Outcome& found = *search.outcome();
  REGEN_ASSIGN(const PlanRequest wanted, request());
  REGEN_ASSIGN(const search::Problem problem, problem_of(wanted));
  REGEN_ASSIGN(const bool better, search::is_better(problem, found, planned_->plan()));
  if (better) {
    swap_in(found, number);
  } else {
    note_bound(found.lower_bound);
  }
  return {};
}

void Session::swap_in(const search::Outcome& found, std::int64_t number) {
  const double before = planned_->report().cost;
  release();
  note(found);
  planned_ = recorded_.take(found);
  PlanOrigin origin = planned_->report().origin;
  origin.improvement = {number, found.seconds, before};
  origin.searched = settings_.background_seconds(recorded_.on_cpu());
  planned_->know(origin);
}

// A search that found nothing better may still have proven more.
void Session::note_bound(double bound) {
  PlanOrigin origin = planned_->report().origin;
  origin.lower_bound = std::max(origin.lower_bound, bound);
  origin.searched = settings_.background_seconds(recorded_.on_cpu());
  planned_->know(origin);
}

void Session::note(const search::Outcome& outcome) {
  if (curve_ && search::has_plan(outcome)) curve_->add(outcome);
}

void Session::save(const PlanKey& key, const PlannedStep& planned) {
  cache_.save(key, planned);
}

}  // namespace regen::session
