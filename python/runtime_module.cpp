// The runtime as Python sees it: one Session per captured step. Python captures and binds tensors;
// everything in between is C++ and runs without Python's lock.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <string>
#include <tuple>

#include "python/feed_binding.h"
#include "python/model_watch.h"
#include "python/owned_tensors.h"
#include "python/progress_binding.h"
#include "python/runtime_errors.h"
#include "python/runtime_session.h"
#include "python/runtime_share.h"
#include "python/runtime_state.h"
#include "regen/base/folder_lock.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/execute/placement/placement.h"
#include "regen/session/runtime_reserve.h"

namespace py = pybind11;

namespace regen {
namespace {

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
  module.def("live_bytes_of_call", &execute::live_bytes_of_call);
  module.def("outgrow", &execute::outgrow);
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
  module.def("loaded_kernel_bytes", [](const std::string& device, Bytes before, Bytes after) {
    return session::loaded_kernel_bytes(session::runtime_reserve(c10::Device(device)), before,
                                        after);
  });
  module.def("device_name", [](const std::string& name) {
    return value_or_raise(execute::open_device(name))->name();
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
  const auto& error =
      py::register_exception<regen::RegenError>(module, "RegenError", PyExc_RuntimeError);
  py::register_exception<regen::BudgetError>(module, "BudgetError",
                                             py::make_tuple(error, py::handle(PyExc_MemoryError)));
  regen::bind_progress(module);
  regen::bind_state(module);
  regen::bind_share(module);
  regen::bind_session(module);
  regen::bind_model_watch(module);
  regen::bind_memory(module);
  regen::bind_feed(module);
}
