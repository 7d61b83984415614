#include "python/runtime_session.h"

#include <utility>

#include "python/interrupts.h"
#include "python/runtime_errors.h"
#include "regen/base/file.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/plan/plan_json.h"
#include "regen/published/planner_list.h"
#include "regen/session/running_searches.h"

namespace py = pybind11;

namespace regen {
namespace {

session::Retreat retreat_of(share::Depth depth) {
  switch (depth) {
    case share::Depth::kPause:
      return session::Retreat::kNothing;
    case share::Depth::kSpill:
      return session::Retreat::kArena;
    case share::Depth::kLeave:
      break;
  }
  return session::Retreat::kState;
}

// The job holds its device while the work is done.
session::DeviceScope scope_of(const std::shared_ptr<share::DeviceLease>& job,
                              const std::shared_ptr<execute::ExecutionDevice>& device) {
  if (!job) return {};
  return [job, device](const std::function<Status()>& work) -> Status {
    REGEN_TRY(job->begin());
    Status status = work();
    share::ReleaseOptions release_options;
    if (!device->torch_device().is_cpu()) release_options.finish = [device] { device->finish(); };
    job->end(release_options);
    return status;
  };
}

Json json_of(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw RegenError("sizes: arguments '" + text + "', expected JSON");
  return json;
}

execute::StepSizes sizes_of(const RuntimeSession::SizedStorages& storages,
                            const RuntimeSession::SizedValues& values,
                            const RuntimeSession::SizedCalls& calls) {
  execute::StepSizes sizes;
  for (const auto& [id, bytes] : storages) {
    sizes.storages.push_back({execute::StorageId(id), bytes});
  }
  for (const auto& [id, shape, strides, offset] : values) {
    sizes.values.push_back({execute::ValueId(id), shape, strides, offset});
  }
  for (const auto& [id, args, kwargs] : calls) {
    sizes.calls.push_back(
        {execute::NodeId(id), json_of(args).get<std::vector<Json>>(), json_of(kwargs)});
  }
  return sizes;
}

std::optional<session::JobBytes> bytes_of(const SessionJob& job) {
  if (!job.job) return std::nullopt;
  const Bytes admitted = job.job->spec().memory;
  return session::JobBytes{job.job->spec().name, admitted, job.limit.value_or(admitted)};
}

}  // namespace

Bytes MovableJobMemory::make_room(share::Depth depth) {
  const session::RoomMade room = memory_->make_room(retreat_of(depth));
  if (room.ok()) return room.left;
  const std::string& problem = room.status.error().message;
  const std::lock_guard lock(mutex_);
  if (known_problems_.insert(problem).second) new_problems_.push_back(problem);
  return room.left;
}

std::vector<std::string> MovableJobMemory::take_problems() {
  const std::lock_guard lock(mutex_);
  return std::exchange(new_problems_, {});
}

RuntimeSession::RuntimeSession(const std::string& program, const std::string& device,
                               const session::Settings& settings, const Samples& samples,
                               const std::optional<std::string>& measurements,
                               const std::optional<Bytes>& fraction_of, const SessionJob& job)
    : job_(job.job) {
  // An operator may be written in Python and tried on another thread.
  const auto opened = [&]() -> Status {
    REGEN_ASSIGN(const auto captured, session::CapturedStep::read(program, device));
    return open(captured, settings, samples, measurements, fraction_of, job);
  };
  check(interruptible(opened));
}

Status RuntimeSession::open(const session::CapturedStep& captured,
                            const session::Settings& settings, const Samples& samples,
                            const std::optional<std::string>& measurements,
                            const std::optional<Bytes>& fraction_of, const SessionJob& job) {
  session::Surroundings surroundings;
  surroundings.registry = &published::every_planner();
  surroundings.sample = [&](execute::StorageId storage) {
    const auto found = samples.find(storage.index());
    return found == samples.end() ? at::Tensor() : found->second;
  };
  surroundings.measurements = measurements;
  surroundings.scope = scope_of(job_, captured.device());
  surroundings.job = bytes_of(job);
  if (job.memory) surroundings.memory = job.memory->memory();
  surroundings.fraction_base = fraction_of;
  surroundings.interrupt = Interrupts::flag();
  REGEN_ASSIGN(session_, session::Session::open(captured, settings, std::move(surroundings)));
  if (job_) session_->set_gate(job_, job.quantum_seconds);
  if (job_ && job.memory) {
    session_->on_ready([own = job_](Bytes bytes) { own->confirm(bytes); });
  }
  return {};
}

RuntimeSession::~RuntimeSession() = default;

session::CompiledStep& RuntimeSession::running() {
  if (!session_->compiled()) throw RegenError("the step is not compiled");
  return session_->running();
}

void RuntimeSession::warn() {
  for (const std::string& warning : session_->take_warnings()) {
    py::module_::import("warnings")
        .attr("warn")("regen: " + as_utf8(warning), py::arg("stacklevel") = 2);
  }
}

void RuntimeSession::plan() {
  check(interruptible([&] { return session_->plan(); }));
  warn();
}

bool RuntimeSession::plan_by(const std::vector<std::string>& planners, double seconds,
                             std::int64_t work) {
  Limits limits;
  if (seconds <= 0 && work <= 0) limits = session_->settings().first_limits(recorded().on_cpu());
  if (seconds > 0) limits.seconds = seconds;
  if (work > 0) limits.work = work;
  return value_or_raise(interruptible([&] { return session_->plan_by(planners, limits); }));
}

std::optional<Bytes> RuntimeSession::least_budget() {
  return value_or_raise(interruptible([&] { return session_->least_budget(); }));
}

bool RuntimeSession::take_least_plan() {
  return value_or_raise(interruptible([&] { return session_->take_least_plan(); }));
}

void RuntimeSession::compile(RuntimeSession* other) {
  const py::gil_scoped_release unlocked;
  const bool shared = other != nullptr && other->session_->compiled();
  check(session_->compile(shared ? other->executor().arena() : nullptr));
}

void RuntimeSession::add_sizes(std::uint64_t number, const SizedStorages& storages,
                               const SizedValues& values, const SizedCalls& calls) {
  const py::gil_scoped_release unlocked;
  check(executor().add_sizes(number, sizes_of(storages, values, calls)));
}

Bytes RuntimeSession::unplanned_bytes_at(const SizedStorages& storages, const SizedValues& values,
                                         const SizedCalls& calls) const {
  const py::gil_scoped_release unlocked;
  return value_or_raise(recorded().unplanned_bytes_at(sizes_of(storages, values, calls)));
}

void RuntimeSession::release() {
  const py::gil_scoped_release unlocked;
  session_->release();
}

void RuntimeSession::follow_limit(Bytes limit) {
  check(interruptible([&] { return session_->follow_limit(limit); }));
  warn();
}

void RuntimeSession::search_beside() {
  check(session_->search_beside());
  warn();
}

bool RuntimeSession::take_better_plan(std::int64_t number) {
  const bool taken = value_or_raise(session_->take_better_plan(number));
  warn();
  return taken;
}

void RuntimeSession::set_gate(std::shared_ptr<Gate> gate, double quantum_seconds) {
  session_->set_gate(std::move(gate), quantum_seconds);
  job_.reset();
}

void RuntimeSession::bind(
    const std::vector<std::tuple<std::size_t, at::Tensor, std::int64_t>>& tensors) {
  for (const auto& [storage, tensor, offset] : tensors) {
    check(executor().bind(execute::StorageId(storage), tensor, offset));
  }
}

void RuntimeSession::run(std::size_t part) {
  session::CompiledStep& step = running();
  Status status;
  {
    const py::gil_scoped_release unlocked;
    status = job_ ? run_as_job(part) : step.run(part);
    if (!status.ok()) session_->forget_lies();
  }
  check(status);
}

bool RuntimeSession::foresee_more() {
  auto more = interruptible([&] { return session_->foresee_more(); });
  warn();
  return value_or_raise(std::move(more));
}

RuntimeSession::IslandCosts RuntimeSession::island_costs() const {
  const execute::Recording& recording = *recorded().recording();
  const execute::Program& program = recording.program;
  IslandCosts costs;
  for (std::size_t n = 0; n < program.nodes.size(); ++n) {
    const execute::Node& node = program.nodes[execute::NodeId(n)];
    if (!execute::is_island(node)) continue;
    const execute::NodeRecord& record = recording.nodes[execute::NodeId(n)];
    Bytes held = 0;
    if (execute::holds_for_backward(node) && node.outputs[0].valid()) {
      held = program.storages[program.values[node.outputs[0]].storage].bytes;
    }
    costs.emplace_back(node.args[0].get<std::int64_t>(), execute::is_island_backward(node),
                       record.workspace, held, record.seconds);
  }
  return costs;
}

Status RuntimeSession::run_as_job(std::size_t part) {
  share::DeviceLease::Run run(*job_);
  REGEN_TRY(run.begin());
  run.release_options.finish = [device = recorded().device()] { device->finish(); };
  REGEN_TRY(session_->running().executor().restore());  // it may have made room since
  return session_->running().run(part);
}

Bytes RuntimeSession::spill() {
  execute::Executor& own = executor();
  const py::gil_scoped_release unlocked;
  return value_or_raise(own.spill());
}

void RuntimeSession::restore() {
  execute::Executor& own = executor();
  const py::gil_scoped_release unlocked;
  check(own.restore());
}

void RuntimeSession::take_back(const std::vector<at::Tensor>& tensors, bool through_host) {
  const py::gil_scoped_release unlocked;
  check(session_->take_back(tensors, through_host));
}

void RuntimeSession::stop_lending() {
  const py::gil_scoped_release unlocked;
  check(session_->stop_lending());
}

std::string RuntimeSession::report_json(std::optional<Bytes> measured_peak,
                                        std::optional<double> measured_seconds,
                                        const Islands& islands, const std::string& other) const {
  if (!session_->has_plan()) throw RegenError("there is no plan");
  session::RunFacts facts{.measured_peak = measured_peak, .measured_seconds = measured_seconds};
  for (const auto& [name, source, reason, held, work, seconds] : islands) {
    facts.islands.push_back({name, source, reason, held, work, seconds});
  }
  if (!other.empty()) {
    facts.other = value_or_raise(parse_plan(value_or_raise(read_file(other)), other));
    facts.other_title = other;
  }
  const py::gil_scoped_release unlocked;
  return value_or_raise(session::plan_page(*session_, facts))
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string RuntimeSession::report_text(std::optional<Bytes> measured_peak,
                                        std::optional<double> measured_seconds) const {
  session::RunReport report = session_->report();
  report.measured_peak = measured_peak;
  report.measured_seconds = measured_seconds;
  return to_text(report);
}

}  // namespace regen
