#include "python/model_watch.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <stdexcept>

namespace py = pybind11;

namespace regen {
namespace {

// The facts about one module after another, as bytes that are compared and never read.
class StructureBytes {
 public:
  template <typename T>
  void add(T value) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer its own bytes, for identity
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

struct Names {
  py::str dict = intern("__dict__");
  py::str training = intern("training");
  py::str hooks = intern("_forward_hooks");
  py::str pre_hooks = intern("_forward_pre_hooks");
  py::str parameters = intern("_parameters");
  py::str modules = intern("_modules");

  static py::str intern(const char* text) {
    return py::reinterpret_steal<py::str>(PyUnicode_InternFromString(text));
  }
};

// Never destroyed: Python may be gone when the process ends.
const Names& names() {
  static const Names* const kNames = new Names();
  return *kNames;
}

py::handle item(py::handle inside, const py::str& name) {
  const py::handle found = PyDict_GetItemWithError(inside.ptr(), name.ptr());
  if (!found) throw py::key_error("a module without '" + std::string(name) + "'");
  return found;
}

void add_hooks(py::handle hooks, StructureBytes& bytes) {
  const auto dict = py::reinterpret_borrow<py::dict>(hooks);
  bytes.add(dict.size());
  for (const auto& [key, hook] : dict) bytes.add(py::cast<std::int64_t>(key));
}

void add_parameters(py::handle parameters, StructureBytes& bytes) {
  const auto dict = py::reinterpret_borrow<py::dict>(parameters);
  bytes.add(dict.size());
  for (const auto& [key, parameter] : dict) {
    const bool tensor = THPVariable_Check(parameter.ptr());
    bytes.add(tensor ? static_cast<char>(THPVariable_Unpack(parameter.ptr()).requires_grad())
                     : char{2});
  }
}

}  // namespace

std::string module_structure(py::handle model) {
  StructureBytes bytes;
  std::vector<py::object> stack = {py::reinterpret_borrow<py::object>(model)};
  while (!stack.empty()) {
    const py::object module = std::move(stack.back());
    stack.pop_back();
    const py::object inside = module.attr(names().dict);
    bytes.add(module.ptr());
    bytes.add(PyObject_IsTrue(item(inside, names().training).ptr()));
    // The model's own hooks run around the captured step.
    if (!module.is(model)) {
      add_hooks(item(inside, names().hooks), bytes);
      add_hooks(item(inside, names().pre_hooks), bytes);
    }
    add_parameters(item(inside, names().parameters), bytes);
    for (const auto& [key, child] :
         py::reinterpret_borrow<py::dict>(item(inside, names().modules))) {
      if (!child.is_none()) stack.push_back(py::reinterpret_borrow<py::object>(child));
    }
  }
  return bytes.take();
}

}  // namespace regen
