#include "python/runtime_state.h"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "python/runtime_errors.h"
#include "regen/execute/placement/state_arena.h"
#include "regen/share/protocol/state_file.h"

namespace py = pybind11;

namespace regen {
namespace {

using share::StateFile;
using Tensors = std::vector<at::Tensor>;

// Until close() lets go of its lock.
class OpenStateFile {
 public:
  OpenStateFile(const std::string& path, bool durable, bool writes) {
    const auto access = writes ? StateFile::Access::kWrite : StateFile::Access::kRead;
    const py::gil_scoped_release unlocked;
    file_ = value_or_raise(StateFile::open(path, {.access = access, .durable = durable}));
  }

  StateFile& file() {
    if (!file_) throw RegenError("the state file was closed");
    return *file_;
  }
  void close() { file_.reset(); }

 private:
  std::optional<StateFile> file_;
};

// (step, bytes), or nothing.
std::optional<std::pair<std::uint64_t, Bytes>> newest(OpenStateFile& self) {
  const auto& info = self.file().newest();
  if (!info) return std::nullopt;
  return std::pair(info->step, info->bytes);
}

// An image is some text, and behind it the packed state.
void commit(OpenStateFile& self, std::uint64_t step, const std::string& text,
            execute::StateArena* state) {
  StateFile& file = self.file();
  const py::gil_scoped_release unlocked;
  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(text))};
  if (state != nullptr) parts.push_back(value_or_raise(state->image()));
  check(file.commit(step, parts));
}

py::bytes read(OpenStateFile& self, Bytes offset, Bytes bytes) {
  std::string text(static_cast<std::size_t>(std::max<Bytes>(bytes, 0)), '\0');
  check(self.file().read(offset, std::as_writable_bytes(std::span(text))));
  return text;
}

void read_state(OpenStateFile& self, Bytes offset, execute::StateArena& state) {
  StateFile& file = self.file();
  const py::gil_scoped_release unlocked;
  check(file.read(offset, value_or_raise(state.image_room())));
  check(state.take_image());
}

template <typename Function>
auto unlocked(Function function) {
  return [function](execute::StateArena& self) {
    const py::gil_scoped_release released;
    return function(self);
  };
}

}  // namespace

void bind_state(py::module_& module) {
  py::class_<execute::StateArena, std::shared_ptr<execute::StateArena>>(module, "StateArena")
      .def(py::init([](Tensors tensors, Tensors on_host, const std::string& device) {
        const py::gil_scoped_release released;
        return std::shared_ptr<execute::StateArena>(value_or_raise(execute::StateArena::pack(
            std::move(tensors), std::move(on_host), value_or_raise(execute::open_device(device)))));
      }))
      .def("leave", unlocked([](execute::StateArena& s) { return value_or_raise(s.leave()); }))
      .def("come_back", unlocked([](execute::StateArena& s) { check(s.come_back()); }))
      .def("move_to",
           [](execute::StateArena& self, const std::string& device) {
             const py::gil_scoped_release released;
             check(self.move_to(value_or_raise(execute::open_device(device))));
           })
      .def("adopt",
           [](execute::StateArena& self, Tensors tensors, Tensors on_host) {
             const py::gil_scoped_release released;
             return value_or_raise(self.adopt(std::move(tensors), std::move(on_host)));
           })
      .def("image",
           [](execute::StateArena& self) {
             const auto image = value_or_raise(self.image());
             return py::bytes(reinterpret_cast<const char*>(image.data()), image.size());
           })
      .def("take_image",
           [](execute::StateArena& self, const std::string& image) {
             const auto room = value_or_raise(self.image_room());
             if (room.size() != image.size()) {
               throw RegenError("an image of " + std::to_string(image.size()) +
                                " bytes, expected " + std::to_string(room.size()));
             }
             std::memcpy(room.data(), image.data(), image.size());
             check(self.take_image());
           })
      .def_property_readonly("away", &execute::StateArena::away)
      .def_property_readonly("bytes", &execute::StateArena::bytes)
      .def_property_readonly("image_bytes", &execute::StateArena::image_bytes)
      .def_property_readonly("last_seconds", [](const execute::StateArena& self) {
        return std::tuple(self.last_seconds().copy, self.last_seconds().pages);
      });
  module.def("state_arena_bytes", [](const std::string& device) {
    return execute::StateArena::bytes_on(c10::Device(device));
  });
  py::class_<OpenStateFile>(module, "StateFile")
      .def(py::init<const std::string&, bool, bool>(), py::arg("path"), py::arg("durable") = true,
           py::arg("writes") = true)
      .def_property_readonly("newest", &newest)
      .def("commit", &commit, py::arg("step"), py::arg("text"), py::arg("state") = nullptr)
      .def("read", &read)
      .def("read_state", &read_state)
      .def("close", &OpenStateFile::close);
}

}  // namespace regen
