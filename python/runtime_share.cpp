#include "python/runtime_share.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/interrupts.h"
#include "python/runtime_errors.h"
#include "python/runtime_session.h"
#include "regen/base/preemption_gate.h"
#include "regen/execute/device/device.h"
#include "regen/share/client/device_lease.h"
#include "regen/share/protocol/environment.h"

namespace py = pybind11;

namespace regen {
namespace {

using share::DeviceLease;

// A gate of two Python functions, for policies of one's own and for tests.
class FunctionGate final : public Gate {
 public:
  FunctionGate(py::function open, py::function wait)
      : open_(std::move(open)), wait_(std::move(wait)) {}
  ~FunctionGate() override {
    const py::gil_scoped_acquire locked;
    open_ = py::function();
    wait_ = py::function();
  }

  bool open() const override {
    const py::gil_scoped_acquire locked;
    return open_().cast<bool>();
  }
  Status wait() override {
    const py::gil_scoped_acquire locked;
    wait_();
    return {};
  }

 private:
  py::function open_;
  py::function wait_;
};

// The job that `regen share run` made of this process; nothing if it was started otherwise.
std::shared_ptr<DeviceLease> join_job() {
  const auto enrolment = value_or_raise(share::enrolment_from_environment());
  if (!enrolment) return nullptr;
  const share::ClientOptions options{.socket = enrolment->socket, .interrupt = Interrupts::flag()};
  return value_or_raise(interruptible([&] { return DeviceLease::join(options, enrolment->spec); }));
}

void begin(DeviceLease& job) {
  check(interruptible([&] { return job.begin(); }));
}

// How far the job may be asked to get out of the way, as `regen share run` said.
std::string deepest_allowed() {
  return to_string(value_or_raise(share::required_enrolment()).deepest);
}

// Whether it could be reported: not while work is under way.
bool report_curve(DeviceLease& job, const std::vector<std::pair<Bytes, double>>& points,
                  Bytes persistent, const std::string& deepest) {
  share::Curve curve{.persistent_bytes = persistent,
                     .deepest = value_or_raise(share::parse_depth(deepest))};
  for (const auto& [bytes, seconds] : points) {
    curve.points.push_back({bytes, share::from_seconds(seconds)});
  }
  return value_or_raise(interruptible([&] { return job.report_curve(curve); }));
}

// As the daemon may ask for it; returns the bytes that are still on the device.
Bytes make_room(MovableJobMemory& memory, const std::string& depth) {
  const share::Depth parsed = value_or_raise(share::parse_depth(depth));
  const py::gil_scoped_release unlocked;
  return memory.make_room(parsed);
}

// `device`: where work may still be under way; empty when none is.
void end(DeviceLease& job, const std::string& device, bool gives_back) {
  const py::gil_scoped_release unlocked;
  share::ReleaseOptions release_options{.finish = {}, .gives_back = gives_back};
  if (!device.empty()) {
    const auto where = execute::open_device(device);
    if (where.ok()) release_options.finish = [where = *where] { where->finish(); };
  }
  job.end(release_options);
}

}  // namespace

void bind_share(py::module_& module) {
  // NOLINTBEGIN(bugprone-unused-raii): registering is what the constructor does
  py::class_<Gate, std::shared_ptr<Gate>>(module, "Gate");
  py::class_<FunctionGate, Gate, std::shared_ptr<FunctionGate>>(module, "FunctionGate")
      .def(py::init<py::function, py::function>());
  py::class_<share::MovableMemory, std::shared_ptr<share::MovableMemory>>(module, "MovableMemory");
  // NOLINTEND(bugprone-unused-raii)
  py::class_<MovableJobMemory, share::MovableMemory, std::shared_ptr<MovableJobMemory>>(module,
                                                                                        "JobMemory")
      .def(py::init<>())
      .def("make_room", &make_room)
      .def("take_problems", &MovableJobMemory::take_problems,
           py::call_guard<py::gil_scoped_release>())
      .def(
          "set_state",
          [](const MovableJobMemory& self, std::shared_ptr<execute::StateArena> state) {
            self.memory()->set_state(std::move(state));
          },
          py::call_guard<py::gil_scoped_release>());
  py::class_<DeviceLease, Gate, std::shared_ptr<DeviceLease>>(module, "Job")
      .def("begin", &begin)
      .def("end", &end, py::arg("device") = "", py::arg("gives_back") = false)
      .def("abandon", &DeviceLease::abandon)
      .def("set_memory", &DeviceLease::set_memory, py::call_guard<py::gil_scoped_release>())
      .def("report_curve", &report_curve)
      .def("limit", &DeviceLease::byte_limit, py::call_guard<py::gil_scoped_release>())
      .def("confirm", &DeviceLease::confirm, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("rooms", &DeviceLease::rooms)
      .def_property_readonly("name", [](const DeviceLease& job) { return job.spec().name; })
      .def_property_readonly("memory", [](const DeviceLease& job) { return job.spec().memory; })
      .def_property_readonly("priority", [](const DeviceLease& job) { return job.spec().priority; })
      .def_property_readonly("weight", [](const DeviceLease& job) { return job.spec().weight; })
      .def_property_readonly("pauses", &DeviceLease::pauses)
      .def_property_readonly("returns", &DeviceLease::returns)
      .def_property_readonly("reconnections", [](DeviceLease& job) {
        const py::gil_scoped_release unlocked;
        return job.reconnections();
      });
  module.def("join_job", &join_job);
  module.def("deepest_allowed", &deepest_allowed);
}

}  // namespace regen
