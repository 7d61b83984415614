#include "regen/session/session.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <utility>

#include "regen/base/file.h"
#include "regen/base/hash.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/plan/plan_json.h"
#include "regen/session/stored_plan.h"

namespace regen::session {
namespace {

// For each of many plans that are searched for in a second.
constexpr std::int64_t kQuickPackWork = 50'000;

// For a file name; other characters than these become '_'.
std::string plain(std::string text, std::size_t most) {
  text.resize(std::min(text.size(), most));
  for (char& c : text) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-';
    if (!kept) c = '_';
  }
  return text;
}

// The file of measurements for a device and a version of torch. A home may be shared by machines
// with different devices: each has a file of its own.
std::string measurements_in(const std::string& folder, const CapturedStep& captured) {
  if (folder.empty()) return "";
  const std::string& device = captured.device()->name();
  const std::string& version = captured.program().torch;
  char digits[17];  // names that look alike as file names
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(fnv1a(version, fnv1a(device))));
  const bool cpu = captured.device()->torch_device().is_cpu();
  return folder + "/profile-" + (cpu ? "cpu" : "cuda") + "-" + plain(device, 60) + "-" +
         plain(version, 40) + "-" + digits + ".json";
}

std::shared_ptr<LinkSource> link_source(const CapturedStep& captured, const Settings& settings,
                                        const Surroundings& surroundings,
                                        const std::shared_ptr<CacheFolder>& cache) {
  if (settings.link) return std::make_shared<LinkSource>(*settings.link);
  return std::make_shared<LinkSource>(
      captured.device(), LinkSourceOptions{.scope = surroundings.scope, .cache = cache});
}

RecordingOptions recording_options(const CapturedStep& captured, const Settings& settings,
                                   const Surroundings& surroundings) {
  RecordingOptions options;
  const auto cache = std::make_shared<CacheFolder>(settings.cache_folder);
  if (surroundings.measurements) {
    options.measurements = *surroundings.measurements;
  } else {
    options.measurements = measurements_in(settings.cache_folder, captured);
    options.cache = cache;
  }
  options.algorithms = settings.algorithms;
  options.cuda_graphs = settings.cuda_graphs;
  options.releasable = settings.releasable;
  options.lends_gradients = settings.lends_gradients;
  options.sample = surroundings.sample;
  options.counts_libraries = true;
  options.scope = surroundings.scope;
  options.interrupt = surroundings.interrupt;
  options.link = link_source(captured, settings, surroundings, cache);
  return options;
}

}  // namespace

Session::Session(RecordedStep recorded, Settings settings, Surroundings surroundings,
                 RecordingOptions recording)
    : recorded_(std::move(recorded)),
      recording_(std::move(recording)),
      settings_(std::move(settings)),
      surroundings_(std::move(surroundings)),
      folder_(recording_.cache ? recording_.cache
                               : std::make_shared<CacheFolder>(settings_.cache_folder)),
      cache_(folder_),
      fraction_base_(surroundings_.fraction_base.value_or(recorded_.unplanned_bytes())) {
  // The caller's tensors are not kept.
  surroundings_.sample = {};
  recording_.sample = {};
}

Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::open(const CapturedStep& captured, Settings settings,
                                               Surroundings surroundings) {
  // Before anything is measured: what can be said of a budget without the step's size.
  REGEN_TRY(allowed_bytes(settings.budget, surroundings.job, 0, *captured.device()));
  RecordingOptions options = recording_options(captured, settings, surroundings);
  std::vector<std::string> warnings;
  options.warn = [&](const std::string& line) { warnings.push_back(line); };
  REGEN_ASSIGN(RecordedStep recorded, captured.record(options));
  options.warn = {};
  std::unique_ptr<Session> session(new Session(std::move(recorded), std::move(settings),
                                               std::move(surroundings), std::move(options)));
  session->warnings_ = std::move(warnings);
  REGEN_TRY(session->make_curve());
  return session;
}

// Plans for all bytes that the job may be given. A plan that was given is the only one.
Status Session::make_curve() {
  if (!surroundings_.memory || !settings_.plan_file.empty()) return {};
  std::optional<JobBytes> job = surroundings_.job;
  if (job) job->limit = job->admitted;
  std::optional<Bytes> most;
  if (settings_.budget) {
    REGEN_ASSIGN(most, allowed_bytes(settings_.budget, job, fraction_base_, *recorded_.device()));
  }
  REGEN_ASSIGN(const Link link, recorded_.link().get());
  REGEN_ASSIGN(const auto host, host_budget());
  search::AddressOptions quick = recorded_.addresses();
  quick.pack_work = kQuickPackWork;
  REGEN_ASSIGN(const auto planners, registry().find_all(settings_.planners));
  search::Problem problem = recorded_.problem(most, host, link);
  problem.registry = surroundings_.registry;
  const Limits limits = interruptible(settings_.limits_within(kCurveSeconds));
  REGEN_ASSIGN(curve_, search::PlanCurve::make(planners, problem, quick, limits));
  return expect_uninterrupted(limits);
}

// --- bytes

Result<std::optional<Bytes>> Session::gross_budget() const {
  return allowed_bytes(settings_.budget, surroundings_.job, fraction_base_ + caller_bytes_,
                       *recorded_.device());
}

Result<std::optional<Bytes>> Session::budget() const {
  REGEN_ASSIGN(std::optional<Bytes> bytes, gross_budget());
  if (bytes) *bytes -= caller_bytes_;
  return bytes;
}

void Session::set_caller_bytes(Bytes bytes) {
  caller_bytes_ = bytes;
  if (compiled_) compiled_->executor().set_beside(beside());
}

// Bytes of the budget that neither the plan nor the caller takes.
Bytes Session::beside() const {
  const auto most = gross_budget();
  if (!most.ok()) return 0;
  return std::max<Bytes>(0, most->value_or(kMaxBytes) - predicted_peak());
}

Result<bool> Session::fits() const {
  REGEN_ASSIGN(const auto most, gross_budget());
  return predicted_peak() <= most.value_or(kMaxBytes);
}

Result<std::optional<Bytes>> Session::host_budget() const {
  if (!settings_.host_budget) return std::optional<Bytes>();
  REGEN_ASSIGN(const auto host, execute::open_device("cpu"));
  REGEN_ASSIGN(const Bytes bytes, settings_.host_budget->bytes(0, *host));
  return std::optional(bytes);
}

// --- planning

Result<PlanKey> Session::key() const {
  PlanKey key;
  key.fingerprint = recorded_.graph().fingerprint();
  key.base_seconds = recorded_.base_seconds();
  REGEN_ASSIGN(key.budget, budget());
  REGEN_ASSIGN(key.host_budget, host_budget());
  key.planners = settings_.planners;
  key.limits = settings_.first_limits(recorded_.on_cpu());
  REGEN_ASSIGN(key.link, recorded_.link().get());
  return key;
}

const search::Registry& Session::registry() const {
  return surroundings_.registry == nullptr ? search::search_planners() : *surroundings_.registry;
}

Result<PlanRequest> Session::request() const {
  PlanRequest request;
  REGEN_ASSIGN(request.planners, registry().find_all(settings_.planners));
  request.registry = surroundings_.registry;
  REGEN_ASSIGN(request.budget, budget());
  REGEN_ASSIGN(request.host_budget, host_budget());
  request.limits = interruptible(settings_.first_limits(recorded_.on_cpu()));
  request.least_limits = interruptible(settings_.limits_within(kLeastSeconds));
  return request;
}

Limits Session::interruptible(Limits limits) const {
  limits.interrupt = surroundings_.interrupt;
  return limits;
}

Status Session::plan() {
  REGEN_ASSIGN(const PlanKey wanted, key());
  const std::string text = wanted.text();
  if (planned_ && planned_for_ == text) return {};
  planned_for_.clear();  // should this fail, it has to be tried again
  refusal_.reset();
  REGEN_ASSIGN(PlannedStep found, find());
  planned_ = std::move(found);
  planned_for_ = text;
  return {};
}

Result<PlannedStep> Session::find() {
  if (!settings_.plan_file.empty()) return given_plan();
  REGEN_ASSIGN(const PlanKey wanted, key());
  if (auto kept = cache_.load(wanted, recorded_)) return std::move(*kept);
  REGEN_ASSIGN(PlannedStep found, search_for_plan());
  save(wanted, found);
  return found;
}

Result<PlannedStep> Session::given_plan() {
  const std::string& path = settings_.plan_file;
  const auto read = [&]() -> Result<Plan> {
    REGEN_ASSIGN(const std::string text, read_file(path));
    return parse_plan(text, path);
  }();
  if (!read.ok()) {
    return Error{read.error().code,
                 read.error().message + "; expected a plan that save_plan() or `regen plan` wrote"};
  }
  Plan plan = *read;
  const PlanOrigin origin{.planner = plan.planner, .lower_bound = recorded_.base_seconds()};
  auto accepted = accept_given(std::move(plan), origin);
  if (!accepted.ok()) return Error{accepted.error().code, path + ": " + accepted.error().message};
  REGEN_ASSIGN(const auto most, gross_budget());
  const Bytes needed = accepted->peak_bytes() + caller_bytes_;
  if (needed > most.value_or(kMaxBytes)) {
    return infeasible("the plan in " + path + " needs " + format_grouped(needed) +
                      " bytes with what the caller holds, expected at most the budget of " +
                      format_grouped(*most) + " (a larger budget, or no plan file)");
  }
  return accepted;
}

// It may be for gradients that are not lent.
Result<PlannedStep> Session::accept_given(Plan plan, const PlanOrigin& origin) {
  auto accepted = recorded_.accept(plan, origin);
  if (accepted.ok() || !settings_.lends_gradients) return accepted;
  REGEN_ASSIGN(RecordedStep outside, recorded_.with_lent_gradients(false));
  auto other = outside.accept(std::move(plan), origin);
  if (!other.ok()) return accepted;
  recorded_ = std::move(outside);
  settings_.lends_gradients = recording_.lends_gradients = false;
  return other;
}

Result<PlannedStep> Session::search_for_plan() {
  REGEN_ASSIGN(const PlanRequest wanted, request());
  if (curve_ && wanted.budget) {
    if (const search::Outcome* known = curve_->within(*wanted.budget))
      return recorded_.take(*known);
  }
  REGEN_ASSIGN(Planning planning, find_plan(recorded_, wanted));
  if (std::holds_alternative<Refusal>(planning)) {
    refusal_.emplace(std::get<Refusal>(std::move(planning)));
    refusal_->caller_bytes = caller_bytes_;
    return to_error(*refusal_);
  }
  PlannedStep found = std::get<PlannedStep>(std::move(planning));
  note(found);
  return found;
}

// Among the plans for all bytes that the job may be given.
void Session::note(const PlannedStep& planned) {
  if (!curve_) return;
  search::Outcome outcome;
  outcome.planner = planned.report().origin.planner;
  outcome.status = search::PlanStatus::kFeasible;
  outcome.plan = planned.plan();
  outcome.simulation = planned.simulation();
  outcome.base_cost = recorded_.base_seconds();
  outcome.lower_bound = planned.report().lower_bound;
  curve_->add(std::move(outcome));
}

Result<std::optional<Bytes>> Session::least_budget() {
  REGEN_ASSIGN(const PlanRequest wanted, request());
  REGEN_ASSIGN(const auto least, least_plan(recorded_, wanted));
  return least ? std::optional(least->peak_bytes()) : std::nullopt;
}

Result<bool> Session::take_least_plan() {
  REGEN_ASSIGN(const PlanRequest wanted, request());
  REGEN_ASSIGN(auto least, least_plan(recorded_, wanted));
  if (!least) return false;
  release();
  planned_ = std::move(*least);
  return true;
}

Result<bool> Session::plan_by(const std::vector<std::string>& planners, const Limits& limits) {
  REGEN_ASSIGN(PlanRequest wanted, request());
  REGEN_ASSIGN(wanted.planners, registry().find_all(planners));
  wanted.limits = interruptible(limits);
  REGEN_ASSIGN(const search::Outcome found, search_plan(recorded_, wanted));
  if (!search::has_plan(found)) return false;
  release();
  planned_ = recorded_.take(found);
  return true;
}

Status Session::take_plan(Plan plan) {
  const PlanOrigin origin{.planner = plan.planner, .lower_bound = recorded_.base_seconds()};
  REGEN_ASSIGN(PlannedStep accepted, recorded_.accept(std::move(plan), origin));
  release();
  planned_ = std::move(accepted);
  return {};
}

std::string Session::stored_plan() const {
  return write_stored_plan(planned().report(), planned().plan(), planned_for_);
}

Status Session::take_stored_plan(std::string_view text) {
  REGEN_ASSIGN(StoredPlan stored, read_stored_plan(text, "plan"));
  REGEN_ASSIGN(PlannedStep accepted, recorded_.accept(std::move(stored.plan), stored.origin));
  release();
  planned_ = std::move(accepted);
  return {};
}

Status Session::settle() {
  REGEN_ASSIGN(const PlanKey wanted, key());
  planned_for_ = wanted.text();
  return {};
}

std::vector<CurvePoint> Session::points() const {
  std::vector<CurvePoint> points;
  if (!settings_.plan_file.empty() && planned_) {
    points.push_back({predicted_peak(), planned().report().cost});
  } else if (curve_) {
    for (const search::Outcome& plan : curve_->plans()) {
      points.push_back({plan.simulation.peak_bytes, plan.simulation.cost});
    }
  }
  return points;
}

// --- running

Status Session::compile(std::shared_ptr<execute::MemoryBlock> arena) {
  if (compiled_) return {};
  if (!planned_) return bad_input("there is no plan to compile");
  REGEN_ASSIGN(CompiledStep step, planned_->compile({.debug = settings_.debug,
                                                     .releasable = settings_.releasable,
                                                     .beside = beside(),
                                                     .memory = surroundings_.memory,
                                                     .arena = std::move(arena)}));
  compiled_.emplace(std::move(step));
  if (gate_) compiled_->executor().set_gate(gate_, quantum_seconds_);
  confirm();
  return {};
}

Result<bool> Session::foresee_more() {
  if (compiled_ && compiled_->executor().misrecorded()) return measure_again();
  if (!compiled_ || !compiled_->executor().shortage()) return false;
  const execute::Shortage shortage = *compiled_->executor().shortage();
  REGEN_ASSIGN(RecordedStep grown, recorded_.with_more(shortage));
  const std::string name = grown.program().nodes[shortage.node].name;
  const Status made = plan_for(std::move(grown));
  if (made.ok()) return true;
  const Bytes more =
      std::accumulate(shortage.requests.begin(), shortage.requests.end(), shortage.held);
  return Error{made.error().code, "'" + name + "' asks for " + format_bytes(more) +
                                      " more than when it was recorded; " + made.error().message};
}

// An operator does something else than the file says that its measurement comes from: none of it is
// believed any more.
Result<bool> Session::measure_again() {
  folder_->distrust("the step does something else than the measurements say");
  RecordingOptions options = recording_;
  options.anew = true;
  REGEN_ASSIGN(RecordedStep measured, recorded_.captured().record(options));
  REGEN_TRY(plan_for(std::move(measured)));
  return true;
}

void Session::forget_lies() {
  if (!compiled_ || !compiled_->executor().believed_a_lie()) return;
  const std::string name = std::filesystem::path(recording_.measurements).filename().string();
  if (recording_.cache) recording_.cache->remove(name);
  folder_->distrust(name + ": the step does something else than it says");
}

// Should there be no plan for it, the next step tries again with what there was.
Status Session::plan_for(RecordedStep recorded) {
  stop_search();
  release();
  RecordedStep before = std::exchange(recorded_, std::move(recorded));
  auto planned = std::exchange(planned_, std::nullopt);
  auto curve = std::exchange(curve_, std::nullopt);
  std::string planned_for = std::exchange(planned_for_, "");
  Status made = make_curve();
  if (made.ok()) made = plan();
  if (made.ok()) return made;
  recorded_ = std::move(before);
  planned_ = std::move(planned);
  curve_ = std::move(curve);
  planned_for_ = std::move(planned_for);
  return made;
}

void Session::release() {
  compiled_.reset();
}

Status Session::take_back(const std::vector<at::Tensor>& tensors, bool through_host) {
  if (!compiled_) return {};
  compiled_->executor().close_room();
  std::vector<c10::Storage> storages = compiled_->executor().in_arena(tensors);
  try {
    if (!through_host) {
      execute::move_to_own_memory(storages);
      return {};
    }
    const auto moved = execute::move_to_host(storages);
    release();
    execute::move_back(moved);
  } catch (const c10::Error& error) {
    return bad_input(error.what_without_backtrace());
  }
  return {};
}

Status Session::stop_lending() {
  if (!settings_.lends_gradients) return {};
  REGEN_ASSIGN(RecordedStep outside, recorded_.with_lent_gradients(false));
  stop_search();
  release();
  settings_.lends_gradients = recording_.lends_gradients = false;
  recorded_ = std::move(outside);
  planned_.reset();
  planned_for_.clear();
  curve_.reset();
  return make_curve();
}

std::vector<std::string> Session::take_warnings() {
  if (auto warning = folder_->take_warning()) warnings_.push_back(std::move(*warning));
  return std::exchange(warnings_, {});
}

void Session::set_gate(std::shared_ptr<Gate> gate, double quantum_seconds) {
  gate_ = std::move(gate);
  quantum_seconds_ = quantum_seconds;
  if (compiled_) compiled_->executor().set_gate(gate_, quantum_seconds_);
}

// --- a job's bytes

Status Session::follow_limit(Bytes limit) {
  if (!surroundings_.job || limit_in_use_ == limit) return {};
  surroundings_.job->limit = limit;
  const auto before = planned_ ? planned_->shared_report() : nullptr;
  REGEN_TRY(plan());
  limit_in_use_ = limit;
  if (!compiled_) return {};
  if (before && same_work(*before, planned_->report())) {
    confirm();
    return {};
  }
  release();
  return execute::release_cached_memory(
      recorded_.device()->torch_device());  // other jobs wait for it
}

void Session::confirm() {
  if (on_ready_) on_ready_(predicted_peak());
}

RunReport Session::report() const {
  RunReport report;
  report.plan = planned().report();
  if (const auto most = gross_budget(); most.ok()) report.budget = *most;
  report.caller_bytes = caller_bytes_;
  report.unplanned_bytes = recorded_.unplanned_bytes();
  report.bound_bytes = recorded_.bound_bytes();
  report.searching = search_ != nullptr;
  if (compiled_) report.memory = compiled_->memory();
  return report;
}

}  // namespace regen::session
