#include "python/progress_binding.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>

#include "regen/base/progress/progress_board.h"
#include "regen/base/progress/progress_line.h"
#include "regen/base/progress/progress_text.h"

namespace py = pybind11;

namespace regen {
namespace {

constexpr std::size_t kLongestText = 300;

template <typename Number>
std::optional<Number> known(Number value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

std::unique_ptr<Progress> begin(const std::string& stage, const std::string& pieces,
                                std::size_t total, const std::string& subject) {
  return std::make_unique<Progress>(
      ProgressState{.stage = stage, .subject = subject, .pieces = pieces, .total = total});
}

// Work ends when Python says so, not when the object happens to be collected.
class PythonProgress {
 public:
  PythonProgress(const std::string& stage, const std::string& pieces, std::size_t total,
                 const std::string& subject)
      : progress_(begin(stage, pieces, total, subject)) {}

  void reach(std::size_t done) {
    if (progress_) progress_->reach(done);
  }
  void end() { progress_.reset(); }

 private:
  std::unique_ptr<Progress> progress_;
};

}  // namespace

// The terminal may be slow, and a thread that draws holds a lock meanwhile: Python's is let go.
void bind_progress(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  allow_progress_line(false);  // until the package has looked at sys.stderr
  py::class_<PythonProgress>(module, "Progress")
      .def(py::init<const std::string&, const std::string&, std::size_t, const std::string&>(),
           py::arg("stage"), py::arg("pieces") = "", py::arg("total") = 0, py::arg("subject") = "",
           Unlocked())
      .def("reach", &PythonProgress::reach)
      .def("end", &PythonProgress::end, Unlocked());
  py::class_<ProgressState>(module, "ProgressState")
      .def_readonly("number", &ProgressState::number)
      .def_readonly("stage", &ProgressState::stage)
      .def_readonly("pieces", &ProgressState::pieces)
      .def_readonly("done", &ProgressState::done)
      .def_property_readonly("total", [](const ProgressState& s) { return known(s.total); })
      .def_readonly("best", &ProgressState::best)
      .def_property_readonly("bound", [](const ProgressState& s) { return known(s.bound); })
      .def_property_readonly("base", [](const ProgressState& s) { return known(s.base); })
      .def_readonly("seconds", &ProgressState::seconds)
      .def_readonly("background", &ProgressState::background)
      .def_readonly("ended", &ProgressState::ended)
      .def_property_readonly("text",
                             [](const ProgressState& s) { return progress_text(s, kLongestText); });
  module.def("read_progress", [](bool reads) { ProgressBoard::of_process().read_events(reads); });
  module.def(
      "wait_for_progress",
      [](double seconds) { ProgressBoard::of_process().wait_for_events(seconds); }, Unlocked());
  module.def("take_progress", [] { return ProgressBoard::of_process().take_events(); });
  module.def("wake_progress_reader", [] { ProgressBoard::of_process().wake_reader(); });
  module.def("allow_progress_line", &allow_progress_line, Unlocked());
  module.def("progress_line_wanted", &progress_line_wanted);
  module.def("pause_progress_line", &pause_progress_line, Unlocked());
  module.def("resume_progress_line", &resume_progress_line, py::arg("inside_line"));
}

}  // namespace regen
