#include "python/owned_tensors.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

namespace py = pybind11;

namespace regen {
namespace {

// Looks places up; what many of them go through is found once.
class Finder {
 public:
  // Null where nothing is there.
  py::object find(py::handle place) {
    const py::handle holder(PyTuple_GET_ITEM(place.ptr(), 0));
    const py::handle key(PyTuple_GET_ITEM(place.ptr(), 1));
    if (PyDict_Check(holder.ptr())) return item(holder, key);
    const py::object own = item(state_of(holder), py::handle(PyTuple_GET_ITEM(key.ptr(), 0)));
    return own ? item(own, py::handle(PyTuple_GET_ITEM(key.ptr(), 1))) : py::object();
  }

 private:
  static py::object item(py::handle holder, py::handle key) {
    auto found = py::reinterpret_steal<py::object>(PyObject_GetItem(holder.ptr(), key.ptr()));
    if (found) return found;
    if (!PyErr_ExceptionMatches(PyExc_KeyError)) throw py::error_already_set();
    PyErr_Clear();
    return {};
  }
  py::handle state_of(py::handle holder) {
    if (!holder.is(holder_)) {
      state_ = holder.attr("optimizer").attr("state");
      holder_ = holder;
    }
    return state_;
  }

  py::handle holder_;
  py::object state_;
};

}  // namespace

void OwnedTensors::add(std::size_t storage, const at::Tensor& tensor, bool same) {
  tensors_.push_back({.storage = storage,
                      .offset = tensor.storage_offset(),
                      .sizes = tensor.sizes().vec(),
                      .strides = tensor.strides().vec(),
                      .type = tensor.scalar_type(),
                      .same = same});
}

bool OwnedTensors::Expected::fits(const at::Tensor& tensor) const {
  return tensor.sizes() == sizes && tensor.strides() == strides && tensor.scalar_type() == type;
}

std::ptrdiff_t OwnedTensors::first_change(const std::vector<at::Tensor>& tensors) const {
  if (tensors.size() != tensors_.size()) {
    throw py::value_error("got " + std::to_string(tensors.size()) + " tensors, expected " +
                          std::to_string(tensors_.size()));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors_[i].fits(tensors[i])) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

std::ptrdiff_t OwnedTensors::bind(RuntimeSession& session, const py::list& places,
                                  const py::list& expected) const {
  if (places.size() != tensors_.size() || expected.size() != tensors_.size()) {
    throw py::value_error("got " + std::to_string(places.size()) + " places, expected " +
                          std::to_string(tensors_.size()));
  }
  std::vector<std::tuple<std::size_t, at::Tensor, std::int64_t>> found;
  found.reserve(tensors_.size());
  Finder finder;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto index = static_cast<py::ssize_t>(i);
    const py::object value = finder.find(PyList_GET_ITEM(places.ptr(), index));
    if (!value || !THPVariable_Check(value.ptr())) return index;
    if (tensors_[i].same && value.ptr() != PyList_GET_ITEM(expected.ptr(), index)) return index;
    const at::Tensor& tensor = THPVariable_Unpack(value.ptr());
    if (!tensors_[i].fits(tensor)) return index;
    found.emplace_back(tensors_[i].storage, tensor, tensors_[i].offset);
  }
  session.bind(found);
  return -1;
}

}  // namespace regen
