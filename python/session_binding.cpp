// The classes of regen/session for Python: budgets, settings, reports and sessions, as attributes.
#include <string>
#include <tuple>
#include <utility>

#include "python/runtime_errors.h"
#include "python/runtime_session.h"
#include "regen/base/file.h"
#include "regen/graph/format_regen.h"
#include "regen/plan/plan_json.h"
#include "regen/report/page.h"
#include "regen/session/running_searches.h"

namespace py = pybind11;

namespace regen {
namespace {

using session::Budget;
using session::Improvement;
using session::MemoryReport;
using session::PlanReport;
using session::Refusal;
using session::Settings;
using Self = RuntimeSession;

std::optional<std::tuple<double, double, double>> link_tuple(const std::optional<Link>& link) {
  if (!link) return std::nullopt;
  return std::tuple(link->to_host, link->to_device, link->both);
}

Link link_of(const std::tuple<double, double, double>& link) {
  return {std::get<0>(link), std::get<1>(link), std::get<2>(link)};
}

void bind_budget(py::module_& module) {
  py::class_<Budget>(module, "Budget")
      .def_static("parse",
                  [](const std::string& text) { return value_or_raise(Budget::parse(text)); })
      .def_static("fraction",
                  [](double fraction) { return value_or_raise(Budget::from_fraction(fraction)); })
      .def_static("of_bytes", &Budget::from_bytes)
      .def_property_readonly("text", &Budget::text)
      .def("bytes", [](const Budget& self, Bytes unplanned, const std::string& device) {
        return value_or_raise(self.bytes(unplanned, *value_or_raise(execute::open_device(device))));
      });
}

void bind_settings(py::module_& module) {
  py::class_<Settings>(module, "Settings")
      .def(py::init<>())
      .def_readwrite("budget", &Settings::budget)
      .def_readwrite("lends_gradients", &Settings::lends_gradients)
      .def_readwrite("planners", &Settings::planners)
      .def_readwrite("host_budget", &Settings::host_budget)
      .def_readwrite("time_limit", &Settings::time_limit)
      .def_readwrite("work_limit", &Settings::work_limit)
      .def_readwrite("debug", &Settings::debug)
      .def_readwrite("cache_folder", &Settings::cache_folder)
      .def_property(
          "link", [](const Settings& self) { return link_tuple(self.link); },
          [](Settings& self, const std::optional<std::tuple<double, double, double>>& link) {
            self.link = link ? std::optional(link_of(*link)) : std::nullopt;
          })
      .def_readwrite("plan_file", &Settings::plan_file)
      .def_readwrite("improve", &Settings::improve)
      .def_readwrite("cuda_graphs", &Settings::cuda_graphs)
      .def_readwrite("releasable", &Settings::releasable)
      .def_property(
          "algorithms",
          [](const Settings& self) {
            return self.algorithms == execute::Algorithms::kAny ? "any" : "default";
          },
          [](Settings& self, const std::string& text) {
            self.algorithms = value_or_raise(execute::parse_algorithms(text));
          })
      .def("background_seconds", &Settings::background_seconds, py::arg("on_cpu"));
  module.attr("BACKGROUND_SECONDS") = session::kBackgroundSeconds;
}

void bind_report(py::module_& module) {
  py::class_<Improvement>(module, "Improvement")
      .def_readonly("step", &Improvement::before_step)
      .def_readonly("seconds", &Improvement::search_seconds)
      .def_readonly("cost", &Improvement::earlier_cost);
  py::class_<PlanReport, std::shared_ptr<PlanReport>>(module, "Report")
      .def_property_readonly("planner", [](const PlanReport& r) { return r.origin.planner; })
      .def_property_readonly(
          "status", [](const PlanReport& r) { return std::string(to_string(r.origin.status)); })
      .def_property_readonly("seconds", [](const PlanReport& r) { return r.origin.seconds; })
      .def_property_readonly("work", [](const PlanReport& r) { return r.origin.work; })
      .def_property_readonly("note", [](const PlanReport& r) { return r.origin.note; })
      .def_property_readonly("searched", [](const PlanReport& r) { return r.origin.searched; })
      .def_property_readonly("improved", [](const PlanReport& r) { return r.origin.improvement; })
      .def_readonly("cost", &PlanReport::cost)
      .def_readonly("base_cost", &PlanReport::base_cost)
      .def_readonly("overhead", &PlanReport::overhead)
      .def_readonly("lower_bound", &PlanReport::lower_bound)
      .def_readonly("gap", &PlanReport::gap)
      .def_readonly("peak_bytes", &PlanReport::peak_bytes)
      .def_readonly("live_bytes", &PlanReport::live_bytes)
      .def_readonly("host_peak_bytes", &PlanReport::host_peak_bytes)
      .def_readonly("offloaded_bytes", &PlanReport::offloaded_bytes)
      .def_readonly("recomputed", &PlanReport::recomputed)
      .def_readonly("steps", &PlanReport::steps)
      .def_readonly("other_algorithms", &PlanReport::other_algorithms)
      .def_readonly("in_place", &PlanReport::in_place)
      .def_property_readonly("kept_tensors",
                             [](const PlanReport& r) { return r.kept ? r.kept->count : 0; })
      .def_property_readonly("kept_bytes",
                             [](const PlanReport& r) { return r.kept ? r.kept->bytes : 0; })
      .def_property_readonly("proven_best", &PlanReport::proven_best);
  py::class_<MemoryReport>(module, "MemoryReport")
      .def_readonly("arena_bytes", &MemoryReport::arena_bytes)
      .def_readonly("host_bytes", &MemoryReport::host_bytes)
      .def_readonly("saved_state_bytes", &MemoryReport::saved_state_bytes)
      .def_readonly("captured", &MemoryReport::captured)
      .def_readonly("captured_bytes", &MemoryReport::captured_bytes)
      .def_readonly("unforeseen", &MemoryReport::unforeseen)
      .def_readonly("unforeseen_nodes", &MemoryReport::unforeseen_nodes);
  py::class_<Refusal>(module, "Refusal")
      .def_property_readonly("budget", [](const Refusal& r) { return r.why.budget; })
      .def_property_readonly("bound_bytes", [](const Refusal& r) { return r.why.bound.bytes; })
      .def_readonly("op", &Refusal::op)
      .def_readonly("tensors", &Refusal::tensors)
      .def_readonly("proven", &Refusal::proven)
      .def_readonly("caller_bytes", &Refusal::caller_bytes)
      .def_readonly("least_budget", &Refusal::least_budget)
      .def("__str__", [](const Refusal& r) { return to_text(r); });
}

void bind_search(py::module_& module) {
  py::class_<search::BackgroundSearch, std::shared_ptr<search::BackgroundSearch>>(
      module, "BackgroundSearch")
      .def_property_readonly("ended", &search::BackgroundSearch::ended)
      .def("stop", &search::BackgroundSearch::stop)
      .def("wait", &search::BackgroundSearch::wait, py::call_guard<py::gil_scoped_release>());
  module.def("num_searches", &session::num_searches);
  // A process that ends must not leave a thread behind.
  py::module_::import("atexit").attr("register")(py::cpp_function(
      [] { session::stop_all_searches(); }, py::call_guard<py::gil_scoped_release>()));
}

// The plan in use; Python keeps one object for it until something new is known.
std::shared_ptr<PlanReport> report_of(const Self& self) {
  if (!self.session().has_plan()) return nullptr;
  return std::const_pointer_cast<PlanReport>(self.session().planned().shared_report());
}

const session::PlannedStep& planned(const Self& self) {
  if (!self.session().has_plan()) throw RegenError("there is no plan");
  return self.session().planned();
}

std::vector<std::pair<Bytes, double>> points(const Self& self) {
  std::vector<std::pair<Bytes, double>> pairs;
  for (const session::CurvePoint& point : self.session().points()) {
    pairs.emplace_back(point.bytes, point.seconds);
  }
  return pairs;
}

std::vector<std::tuple<std::string, double, double>> trace(Self& self) {
  std::vector<std::tuple<std::string, double, double>> rows;
  for (const session::TracedOp& op : self.running().take_trace()) {
    rows.emplace_back(op.name, op.begin, op.end);
  }
  return rows;
}

template <typename Class>
void bind_planning(Class& type) {
  type.def_property_readonly(
          "settings", [](Self& s) -> Settings& { return s.session().settings(); },
          py::return_value_policy::reference_internal)
      .def_property(
          "caller_bytes", [](const Self& s) { return s.session().caller_bytes(); },
          [](Self& s, Bytes bytes) { s.session().set_caller_bytes(bytes); })
      .def_property_readonly("fraction_of",
                             [](const Self& s) { return s.session().fraction_base(); })
      .def_property_readonly(
          "gross_budget", [](const Self& s) { return value_or_raise(s.session().gross_budget()); })
      .def_property_readonly("budget",
                             [](const Self& s) { return value_or_raise(s.session().budget()); })
      .def_property_readonly("fits",
                             [](const Self& s) { return value_or_raise(s.session().fits()); })
      .def_property_readonly(
          "predicted_peak",
          [](const Self& s) { return planned(s).peak_bytes() + s.session().caller_bytes(); })
      .def("plan", &Self::plan)
      .def("plan_by", &Self::plan_by, py::arg("planners"), py::arg("seconds") = 0.0,
           py::arg("work") = 0)
      .def_property_readonly("report", &report_of)
      .def_property_readonly("planned_for", [](const Self& s) { return s.session().planned_for(); })
      .def_property_readonly("refusal", [](const Self& s) { return s.session().refusal(); })
      .def("least_budget", &Self::least_budget)
      .def("take_least_plan", &Self::take_least_plan)
      .def("take_plan",
           [](Self& s, const std::string& json) {
             check(s.session().take_plan(value_or_raise(parse_plan(json, "plan"))));
           })
      .def("stored_plan", [](const Self& s) { return s.session().stored_plan(); })
      .def("take_stored_plan",
           [](Self& s, const std::string& text) { check(s.session().take_stored_plan(text)); })
      .def("settle", [](Self& s) { check(s.session().settle()); })
      .def("points", &points)
      .def("plan_json", [](const Self& s) { return write_plan(planned(s).plan()); })
      .def("graph_json",
           [](const Self& s) { return value_or_raise(write_regen_graph(s.recorded().graph())); })
      .def("program_json",
           [](const Self& s) { return execute::write_program(s.recorded().program()); })
      .def("explanation", [](const Self& s) { return planned(s).explanation(); })
      .def("report_json", &Self::report_json, py::arg("measured_peak"), py::arg("measured_seconds"),
           py::arg("islands"), py::arg("other"))
      .def("report_text", &Self::report_text, py::arg("measured_peak"),
           py::arg("measured_seconds"));
}

template <typename Class>
void bind_facts(Class& type) {
  type.def_property_readonly("fingerprint",
                             [](const Self& s) { return s.recorded().graph().fingerprint(); })
      .def_property_readonly("fixed_bytes",
                             [](const Self& s) { return s.recorded().fixed_bytes(); })
      .def_property_readonly("unplanned_bytes",
                             [](const Self& s) { return s.recorded().unplanned_bytes(); })
      .def("unplanned_bytes_at", &Self::unplanned_bytes_at)
      .def_property_readonly("bound_bytes",
                             [](const Self& s) { return s.recorded().bound_bytes(); })
      .def_property_readonly("base_seconds",
                             [](const Self& s) { return s.recorded().base_seconds(); })
      .def_property_readonly("reserve_bytes",
                             [](const Self& s) { return s.recorded().reserve().allocations; })
      .def_property_readonly("measurements",
                             [](const Self& s) { return s.session().measurements(); })
      .def_property_readonly("limit", [](const Self& s) { return s.session().limit_in_use(); })
      .def_property(
          "link",
          [](const Self& s) {
            const py::gil_scoped_release unlocked;
            const Link link = value_or_raise(s.session().link());
            return std::tuple(link.to_host, link.to_device, link.both);
          },
          [](Self& s, const std::tuple<double, double, double>& link) {
            s.session().set_link(link_of(link));
          });
}

template <typename Class>
void bind_improvement(Class& type) {
  type.def("search_beside", &Self::search_beside)
      .def_property_readonly("search", [](const Self& s) { return s.session().search(); })
      .def_property_readonly("searched_for",
                             [](const Self& s) { return s.session().searched_for(); })
      .def("take_better_plan", &Self::take_better_plan)
      .def("stop_search", [](Self& s) { s.session().stop_search(); })
      .def("follow_limit", &Self::follow_limit);
}

template <typename Class>
void bind_running(Class& type) {
  type.def("compile", &Self::compile, py::arg("share").none(true) = py::none())
      .def("knows_sizes",
           [](Self& s, std::uint64_t number) { return s.executor().knows_sizes(number); })
      .def("add_sizes", &Self::add_sizes)
      .def("use_sizes", [](Self& s, std::uint64_t number) { s.executor().use_sizes(number); })
      .def_property_readonly("compiled", [](const Self& s) { return s.session().compiled(); })
      .def("release", &Self::release)
      .def("set_gate", &Self::set_gate)
      .def_property_readonly("pauses", [](Self& s) { return s.executor().num_pauses(); })
      .def("spill", &Self::spill)
      .def("restore", &Self::restore)
      .def_property_readonly("spilled", [](Self& s) { return s.executor().spilled(); })
      .def("prepare_spill",
           [](Self& s) {
             execute::Executor& own = s.executor();
             const py::gil_scoped_release unlocked;
             check(own.prepare_spill());
           })
      .def("bind", &Self::bind)
      .def("set_scalars",
           [](Self& s, const std::vector<double>& scalars) {
             check(s.executor().set_scalars(scalars));
           })
      .def("cut_backward", [](Self& s, Bytes bytes) { s.executor().cut_backward(bytes); })
      .def_property_readonly("num_parts", [](Self& s) { return s.executor().num_parts(); })
      .def("results_of", [](Self& s, std::size_t part) { return s.executor().results_of(part); })
      .def("storages_read_from",
           [](Self& s, std::size_t part) {
             std::vector<std::int64_t> storages;
             for (const auto id : s.executor().storages_read_from(part)) {
               storages.push_back(static_cast<std::int64_t>(id.index()));
             }
             return storages;
           })
      .def("run", &Self::run)
      .def("foresee_more", &Self::foresee_more)
      .def("island_costs", &Self::island_costs)
      .def("result", [](Self& s, std::size_t index) { return s.executor().result(index); })
      .def("forget", [](Self& s) { s.executor().forget(); })
      .def("lent_results", [](Self& s) { return s.executor().lent_results(); })
      .def_property_readonly("lent_bytes", [](Self& s) { return s.executor().lent_bytes(); })
      .def_property_readonly("room_bytes", [](Self& s) { return s.executor().room_bytes(); })
      .def("lend_room", [](Self& s) { check(s.executor().lend_room()); })
      .def("close_room", [](Self& s) { s.executor().close_room(); })
      .def("take_back", &Self::take_back)
      .def("stop_lending", &Self::stop_lending)
      .def("memory", [](Self& s) { return s.running().memory(); })
      .def("set_trace", [](Self& s, bool on) { s.executor().set_trace(on); })
      .def("trace", &trace)
      .def("set_host_timing", [](Self& s, bool on) { s.executor().set_host_timing(on); })
      .def("take_host_time", [](Self& s) {
        const execute::HostTime time = s.executor().take_host_time();
        return std::tuple(time.seconds, time.call_seconds, time.calls);
      });
}

std::unique_ptr<Self> open(const std::string& program, const std::string& device,
                           const Settings& settings, const Self::Samples& samples,
                           const std::optional<std::string>& measurements,
                           const std::optional<Bytes>& fraction_of,
                           std::shared_ptr<share::DeviceLease> job, double quantum,
                           std::shared_ptr<MovableJobMemory> memory,
                           const std::optional<Bytes>& limit) {
  const SessionJob own{std::move(job), quantum, std::move(memory), limit};
  return std::make_unique<Self>(program, device, settings, samples, measurements, fraction_of, own);
}

}  // namespace

void bind_session(py::module_& module) {
  bind_budget(module);
  bind_settings(module);
  bind_report(module);
  bind_search(module);
  py::class_<Self> type(module, "Session");
  module.def("report_page", [](const std::string& json) {
    return report::page(value_or_raise(parse_json(json, "report")));
  });
  module.def("report_frame", [](const std::string& json, int height) {
    return report::frame(value_or_raise(parse_json(json, "report")), height);
  });
  module.def("write_file", [](const std::string& path, const std::string& text) {
    check(write_file(path, text));
  });
  type.def(py::init(&open), py::arg("program"), py::arg("device"), py::arg("settings"),
           py::arg("samples"), py::kw_only(), py::arg("measurements") = py::none(),
           py::arg("fraction_of") = py::none(), py::arg("job") = py::none(),
           py::arg("quantum") = execute::kQuantumSeconds, py::arg("memory") = py::none(),
           py::arg("limit") = py::none());
  bind_planning(type);
  bind_facts(type);
  bind_improvement(type);
  bind_running(type);
}

}  // namespace regen
