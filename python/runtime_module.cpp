// The runtime as Python sees it: one Step per captured program. Python captures, binds tensors and
// is told what happened; everything in between is C++ and runs without Python's lock.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <string>
#include <tuple>

#include "python/feed_binding.h"
#include "python/model_watch.h"
#include "python/owned_tensors.h"
#include "python/runtime_errors.h"
#include "python/runtime_share.h"
#include "python/runtime_state.h"
#include "python/runtime_step.h"
#include "regen/base/folder_lock.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/execute/record/link.h"

namespace py = pybind11;

namespace regen {
namespace {

void bind_search(py::module_& module) {
  py::class_<search::BackgroundSearch>(module, "BackgroundSearch")
      .def_property_readonly("ended", &search::BackgroundSearch::ended)
      .def("stop", &search::BackgroundSearch::stop)
      .def("wait", &search::BackgroundSearch::wait, py::call_guard<py::gil_scoped_release>())
      // Of an ended search.
      .def_property_readonly(
          "lower_bound", [](const search::BackgroundSearch& s) { return s.outcome()->lower_bound; })
      .def_property_readonly(
          "seconds", [](const search::BackgroundSearch& s) { return s.outcome()->seconds; });
}

void bind_step(py::module_& module) {
  py::class_<PlanRequest>(module, "PlanRequest")
      .def(py::init<>())
      .def_readwrite("planners", &PlanRequest::planners)
      .def_readwrite("budget", &PlanRequest::budget)
      .def_readwrite("host_budget", &PlanRequest::host_budget)
      .def_readwrite("seconds", &PlanRequest::seconds)
      .def_readwrite("work", &PlanRequest::work)
      .def_readwrite("to_host", &PlanRequest::to_host)
      .def_readwrite("to_device", &PlanRequest::to_device)
      .def_readwrite("both", &PlanRequest::both);
  py::class_<RuntimeStep>(module, "Step")
      .def(py::init<const std::string&, const std::string&>())
      .def("record", &RuntimeStep::record)
      .def("make_graph", &RuntimeStep::make_graph)
      .def("plan", &RuntimeStep::plan)
      .def("least_budget", &RuntimeStep::least)
      .def("make_curve", &RuntimeStep::make_curve)
      .def("curve", &RuntimeStep::curve)
      .def("take_within", &RuntimeStep::take_within)
      .def("search", &RuntimeStep::search)
      .def("is_improved_by", &RuntimeStep::is_improved_by)
      .def("take", &RuntimeStep::take)
      .def("explain_budget", &RuntimeStep::explain_budget)
      .def("set_job", &RuntimeStep::set_job)
      .def("set_memory", &RuntimeStep::set_memory)
      .def("set_gate", &RuntimeStep::set_gate)
      .def_property_readonly("pauses", [](RuntimeStep& s) { return s.executor().num_pauses(); })
      .def("compile", &RuntimeStep::compile, py::arg("reserve"), py::arg("debug"),
           py::arg("releasable") = false, py::arg("capture") = true)
      .def("release", &RuntimeStep::release)
      .def("spill", &RuntimeStep::spill)
      .def("restore", &RuntimeStep::restore)
      .def_property_readonly("spilled", [](RuntimeStep& s) { return s.executor().spilled(); })
      .def("prepare_spill", &RuntimeStep::prepare_spill)
      .def("set_plan", &RuntimeStep::set_plan)
      .def("judge", &RuntimeStep::judge)
      .def("plan_json", &RuntimeStep::plan_json)
      .def("graph_json", &RuntimeStep::graph_json)
      .def("program_json", &RuntimeStep::program_json)
      .def("explain_plan", &RuntimeStep::explain_plan)
      .def_property_readonly("fingerprint", &RuntimeStep::fingerprint)
      .def_property_readonly("fixed_bytes", &RuntimeStep::fixed_bytes)
      .def_property_readonly("unplanned_bytes", &RuntimeStep::unplanned_bytes)
      .def_property_readonly("bound_bytes", &RuntimeStep::bound_bytes)
      .def_property_readonly("base_seconds", &RuntimeStep::base_seconds)
      .def("bind", &RuntimeStep::bind)
      .def("set_scalars",
           [](RuntimeStep& s, const std::vector<double>& scalars) {
             check(s.executor().set_scalars(scalars));
           })
      .def("cut_backward", [](RuntimeStep& s, Bytes bytes) { s.executor().cut_backward(bytes); })
      .def_property_readonly("num_parts", [](RuntimeStep& s) { return s.executor().num_parts(); })
      .def("results_of",
           [](RuntimeStep& s, std::size_t part) { return s.executor().results_of(part); })
      .def("run", &RuntimeStep::run)
      .def("result", [](RuntimeStep& s, std::size_t index) { return s.executor().result(index); })
      .def("forget", [](RuntimeStep& s) { s.executor().forget(); })
      .def("memory", &RuntimeStep::memory)
      .def("set_trace", [](RuntimeStep& s, bool on) { s.executor().set_trace(on); })
      .def("trace", &RuntimeStep::trace)
      .def("set_host_timing", [](RuntimeStep& s, bool on) { s.executor().set_host_timing(on); })
      .def("take_host_time", [](RuntimeStep& s) {
        const execute::HostTime time = s.executor().take_host_time();
        return std::tuple(time.seconds, time.call_seconds, time.calls);
      });
}

void bind_model_watch(py::module_& module) {
  module.def("module_structure",
             [](py::handle model) { return py::bytes(module_structure(model)); });
  py::class_<OwnedTensors>(module, "OwnedTensors")
      .def(py::init<>())
      .def("add", &OwnedTensors::add)
      .def("bind", &OwnedTensors::bind)
      .def("first_change", &OwnedTensors::first_change);
}

void bind_memory(py::module_& module) {
  module.def("install_memory_meter", [] { check(execute::install_memory_meter()); });
  module.def("remove_memory_meter", [] { check(execute::remove_memory_meter()); });
  module.def("reset_memory_peak", [](const std::string& device) {
    check(execute::reset_memory_peak(c10::Device(device)));
  });
  module.def("memory_use", [](const std::string& device) {
    const execute::MemoryUse use = value_or_raise(execute::memory_use(c10::Device(device)));
    py::dict dict;
    dict["allocated"] = use.allocated;
    dict["allocated_peak"] = use.allocated_peak;
    dict["reserved"] = use.reserved;
    dict["reserved_peak"] = use.reserved_peak;
    dict["driver"] = use.driver;
    return dict;
  });
  module.def("device_name", [](const std::string& name) {
    return value_or_raise(execute::open_device(name))->name();
  });
  module.def("measure_link", [](const std::string& name) {
    const Link link =
        value_or_raise(execute::measure_link(*value_or_raise(execute::open_device(name))));
    return std::tuple(link.to_host, link.to_device, link.both);
  });
  module.def("device_memory", [](const std::string& name) {
    const auto device = value_or_raise(execute::open_device(name));
    const execute::DeviceMemory memory = value_or_raise(device->memory());
    return std::pair(memory.total, memory.free);
  });
  py::class_<FolderLock>(module, "FolderLock")
      .def(py::init<const std::string&>(), py::call_guard<py::gil_scoped_release>())
      .def("__enter__", [](const FolderLock&) {})
      .def("__exit__", [](FolderLock& lock, const py::args&) { lock.release(); });
  module.def("parse_bytes",
             [](const std::string& text) { return value_or_raise(parse_bytes(text)); });
  module.def("format_bytes", [](Bytes bytes) { return format_bytes(bytes); });
}

}  // namespace
}  // namespace regen

PYBIND11_MODULE(_runtime, module) {
  module.doc() = "regen's planner and executor";
  py::register_exception<regen::RegenError>(module, "RegenError", PyExc_RuntimeError);
  py::register_exception<regen::BudgetError>(module, "BudgetError", PyExc_MemoryError);
  regen::bind_state(module);
  regen::bind_share(module);
  regen::bind_search(module);
  regen::bind_step(module);
  regen::bind_model_watch(module);
  regen::bind_memory(module);
  regen::bind_feed(module);
}
