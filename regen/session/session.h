// One step of a training loop over its whole life: recorded once, planned and compiled as often as
// its bytes change, run in between.
//
//   open()                     recorded
//   plan()                     a plan within the budget: given, from the cache, known, or searched
//   compile(), release()       takes the arena, gives it back
//   search_beside()            a better plan is searched for while steps run
//   take_better_plan(n)        between two steps: if one was found, it is the plan, to be compiled
//   follow_limit(bytes)        between two steps: the job may use other bytes than before
//
// The states are the types CapturedStep, RecordedStep, PlannedStep, CompiledStep; a session holds
// one of each at most and moves between them. One thread at a time uses it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "regen/search/services/background_search.h"
#include "regen/search/services/plan_curve.h"
#include "regen/session/plan_cache.h"
#include "regen/session/settings.h"
#include "regen/session/state/compiled_step.h"
#include "regen/session/state/plan_search.h"

namespace regen::session {

// What a session depends on beside the step and its settings.
struct Surroundings {
  // The planners that settings may name; must outlive the session. Null: those of search/.
  const search::Registry* registry = nullptr;
  std::function<at::Tensor(execute::StorageId)> sample = {};  // as RecordingOptions::sample
  std::optional<std::string> measurements;  // their file; absent: one in the cache folder
  DeviceScope scope = {};                   // around work on the device that is no step
  std::optional<JobBytes> job;
  // Of a job whose bytes may change between two steps: where its arena is moved, and plans for all
  // bytes that it may be given.
  std::shared_ptr<JobMemory> memory = nullptr;
  // Of which a budget may be a fraction; absent: what this step takes when everything is kept.
  std::optional<Bytes> fraction_base;
  // Set from outside (Ctrl-C) to end what a caller waits for, measuring and planning, with an error.
  const std::atomic<bool>* interrupt = nullptr;
};

// Bytes and seconds of a step under a plan.
struct CurvePoint {
  Bytes bytes = 0;
  double seconds = 0;
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const CapturedStep& captured, Settings settings,
                                               Surroundings surroundings = {});
  ~Session();

  const RecordedStep& recorded() const { return recorded_; }
  // Changes count from the next plan on.
  Settings& settings() { return settings_; }
  const Settings& settings() const { return settings_; }

  // The file of measurements that the recording used; empty: none.
  const std::string& measurements() const { return recording_.measurements; }
  // Of copies between the host and the device; given, or measured the first time.
  Result<Link> link() const { return recorded_.link().get(); }
  void set_link(const Link& link) { recorded_.set_link(std::make_shared<LinkSource>(link)); }

  // --- bytes

  // What a caller holds beside the step: loss, optimizer, buckets. It is part of the budget, not of
  // the plan.
  Bytes caller_bytes() const { return caller_bytes_; }
  void set_caller_bytes(Bytes bytes);
  // Of which a budget may be a fraction, without the caller's bytes.
  Bytes fraction_base() const { return fraction_base_; }
  // With what the caller holds, and without it: for the plan. Absent: no limit.
  Result<std::optional<Bytes>> gross_budget() const;
  Result<std::optional<Bytes>> budget() const;
  // Of the plan and the caller.
  Bytes predicted_peak() const { return planned().peak_bytes() + caller_bytes_; }
  // The plan in use keeps the budget with what the caller holds now.
  Result<bool> fits() const;

  // --- planning

  // Finds a plan within the budget unless the one in use is for it. Where there is none, the error
  // is refusal() as text.
  Status plan();
  bool has_plan() const { return planned_.has_value(); }
  const PlannedStep& planned() const { return *planned_; }
  // The key of the plan in use, as text; empty before plan().
  const std::string& planned_for() const { return planned_for_; }
  // Why plan() failed last.
  const std::optional<Refusal>& refusal() const { return refusal_; }
  // The smallest that is known to work, without what the caller holds.
  Result<std::optional<Bytes>> least_budget();
  // The plan of the least budget takes the place of the one in use, if there is one.
  Result<bool> take_least_plan();
  // What other planners find within the budget takes the place of the plan in use. False if they
  // find nothing.
  Result<bool> plan_by(const std::vector<std::string>& planners, const Limits& limits);
  // A plan from outside takes the place of the plan in use.
  Status take_plan(Plan plan);
  // The plan in use as text, for other ranks, and one that another rank has found.
  std::string stored_plan() const;
  Status take_stored_plan(std::string_view text);
  // Counts the plan in use as the one that plan() would find.
  Status settle();
  // What memory buys: of the plans that are known, ascending in bytes.
  std::vector<CurvePoint> points() const;

  // --- running

  // `arena`: of a step that never runs at the same time, in place of an own one.
  Status compile(std::shared_ptr<execute::MemoryBlock> arena = nullptr);
  bool compiled() const { return compiled_.has_value(); }
  CompiledStep& running() { return *compiled_; }
  // After the first part of a step failed because an operator did not do what its recording says,
  // and nothing has changed. For lack of bytes: that operator's memory is part of the plan from now
  // on. It does something else than a file of measurements says: all is measured again. The plan is
  // made again and waits to be compiled. False: the part failed for another reason.
  Result<bool> foresee_more();
  // After any part failed: a file of measurements that led to it does not lead the next start there.
  void forget_lies();
  // Gives the arena back.
  void release();
  // Between two steps, what the caller has of the arena (lent gradients, and of these tensors those in lent
  // room) gets memory of its own. `through_host`: there is no room for both, and the arena is given back.
  Status take_back(const std::vector<at::Tensor>& tensors, bool through_host);
  // Gradients are the caller's own from now on. The plan is for others, so there is none until the next plan().
  Status stop_lending();
  // Runs ask the gate before each quantum of work; null: never. Not while one is under way.
  void set_gate(std::shared_ptr<Gate> gate, double quantum_seconds);

  // --- a job's bytes

  const std::optional<JobBytes>& job() const { return surroundings_.job; }
  // The limit that the plan in use was chosen for.
  std::optional<Bytes> limit_in_use() const { return limit_in_use_; }
  Status follow_limit(Bytes limit);
  // Called with the bytes of a plan that is in place for the job's limit.
  void on_ready(std::function<void(Bytes)> call) { on_ready_ = std::move(call); }

  // --- better plans

  // At most one search at a time, and one for each plan that was made in the foreground.
  Status search_beside();
  const std::shared_ptr<search::BackgroundSearch>& search() const { return search_; }
  // The key of the plan that the search is, or was, to improve.
  const std::string& searched_for() const { return searched_for_; }
  // Before step `number`, with no step under way: true when a better plan is in use now, to be
  // compiled.
  Result<bool> take_better_plan(std::int64_t number);
  // What was found is thrown away; the same plan may be improved again.
  void stop_search();

  RunReport report() const;
  // One line each, of what went wrong without stopping the session.
  std::vector<std::string> take_warnings();

 private:
  Session(RecordedStep recorded, Settings settings, Surroundings surroundings,
          RecordingOptions recording);
  Result<bool> measure_again();
  Result<PlannedStep> accept_given(Plan plan, const PlanOrigin& origin);
  Status plan_for(RecordedStep recorded);
  Status make_curve();
  Bytes beside() const;
  Result<std::optional<Bytes>> host_budget() const;
  Result<PlanKey> key() const;
  const search::Registry& registry() const;
  Result<PlanRequest> request() const;
  Limits interruptible(Limits limits) const;
  Result<PlannedStep> given_plan();
  Result<PlannedStep> find();
  Result<PlannedStep> search_for_plan();
  void note(const PlannedStep& planned);
  void note(const search::Outcome& outcome);
  void save(const PlanKey& key, const PlannedStep& planned);
  void confirm();
  Status begin_search();
  Result<search::Problem> problem_of(const PlanRequest& wanted) const;
  void warn_of_search(const Error& error);
  Status judge_search(const search::BackgroundSearch& search, std::int64_t number);
  void swap_in(const search::Outcome& found, std::int64_t number);
  void note_bound(double bound);

  RecordedStep recorded_;
  RecordingOptions recording_;
  Settings settings_;
  Surroundings surroundings_;
  std::shared_ptr<CacheFolder> folder_;
  PlanCache cache_;
  Bytes fraction_base_ = 0;
  Bytes caller_bytes_ = 0;
  std::optional<search::PlanCurve> curve_;
  std::optional<PlannedStep> planned_;
  std::string planned_for_;
  std::optional<Refusal> refusal_;
  std::optional<CompiledStep> compiled_;
  std::shared_ptr<Gate> gate_;
  double quantum_seconds_ = execute::kQuantumSeconds;
  std::optional<Bytes> limit_in_use_;
  std::function<void(Bytes)> on_ready_;
  std::shared_ptr<search::BackgroundSearch> search_;
  std::string searched_for_;  // the key of the plan that is, or was, to be improved
  std::vector<std::string> warnings_;
};

}  // namespace regen::session
