#include "python/feed_batch.h"

#include <ATen/ops/from_blob.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>

#include "python/runtime_errors.h"

namespace py = pybind11;

namespace regen {
namespace {

using share::BatchNode;
using share::ElementType;
using Kind = BatchNode::Kind;

constexpr std::array<c10::ScalarType, share::kElementTypes> kScalarTypes{
    at::kByte,  at::kChar,   at::kShort,        at::kInt,           at::kLong, at::kHalf,
    at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble, at::kBool, at::kBFloat16};

std::string type_name(py::handle value) {
  return py::str(py::type::handle_of(value).attr("__name__"));
}

[[noreturn]] void refuse(const std::string& path, const std::string& found) {
  throw RegenError("batch" + path + " is " + found +
                   ", expected tensors, numbers, text, None, and tuples, lists and dicts of them");
}

BatchNode tensor_node(const at::Tensor& tensor, const std::string& path) {
  if (tensor.layout() != at::kStrided || tensor.is_quantized())
    refuse(path, "a tensor that is not dense");
  for (std::size_t type = 0; type < kScalarTypes.size(); ++type) {
    if (kScalarTypes[type] != tensor.scalar_type()) continue;
    return {.kind = Kind::kTensor,
            .type = static_cast<ElementType>(type),
            .shape = tensor.sizes().vec()};
  }
  refuse(path, std::string("a tensor of ") + c10::toString(tensor.scalar_type()));
}

class Taker {
 public:
  explicit Taker(TakenBatch& batch) : batch_(batch) {}

  BatchNode take(py::handle value, const std::string& path) {
    if (++nodes_ > share::kMaxLayoutNodes) refuse(path, "one of too many values");
    if (path.size() > 1000 || depth_ > share::kMaxLayoutDepth)
      refuse(path.substr(0, 100), "nested too deeply");
    if (value.is_none()) return {};
    if (THPVariable_Check(value.ptr())) {
      const at::Tensor& tensor = THPVariable_Unpack(value.ptr());
      BatchNode node = tensor_node(tensor, path);
      batch_.tensors.push_back(tensor.detach().resolve_conj().resolve_neg());
      return node;
    }
    if (PyBool_Check(value.ptr()))
      return {.kind = Kind::kBool, .integer = value.is(py::handle(Py_True)) ? 1 : 0};
    if (PyLong_Check(value.ptr())) return integer(value, path);
    if (PyFloat_Check(value.ptr())) return {.kind = Kind::kReal, .real = value.cast<double>()};
    if (PyUnicode_Check(value.ptr()))
      return {.kind = Kind::kText, .text = value.cast<std::string>()};
    ++depth_;
    BatchNode node = container(value, path);
    --depth_;
    return node;
  }

 private:
  static BatchNode integer(py::handle value, const std::string& path) {
    const std::int64_t number = PyLong_AsLongLong(value.ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      refuse(path, "a number of more than 64 bits");
    }
    return {.kind = Kind::kInteger, .integer = number};
  }

  BatchNode container(py::handle value, const std::string& path) {
    const bool tuple = PyTuple_Check(value.ptr());
    if (tuple || PyList_Check(value.ptr())) {
      BatchNode node{.kind = tuple ? Kind::kTuple : Kind::kList};
      std::size_t index = 0;
      for (const py::handle item : py::reinterpret_borrow<py::sequence>(value)) {
        node.children.push_back(take(item, path + "[" + std::to_string(index++) + "]"));
      }
      return node;
    }
    if (!PyMapping_Check(value.ptr()) || !py::hasattr(value, "items")) {
      refuse(path, "a " + type_name(value));
    }
    BatchNode node{.kind = Kind::kDictionary};
    for (const py::handle item : value.attr("items")()) {
      const auto pair = py::reinterpret_borrow<py::sequence>(item);
      const py::object key = pair[0];
      const std::string inside = path + "[" + py::repr(key).cast<std::string>() + "]";
      const bool good =
          PyUnicode_Check(key.ptr()) || (PyLong_Check(key.ptr()) && !PyBool_Check(key.ptr()));
      if (!good) refuse(inside, "under a key that is neither text nor a whole number");
      node.children.push_back(take(key, inside));
      node.children.push_back(take(py::object(pair[1]), inside));
    }
    return node;
  }

  TakenBatch& batch_;
  std::size_t nodes_ = 0;
  std::size_t depth_ = 0;
};

void write_node(const BatchNode& node, const std::vector<at::Tensor>& tensors, std::size_t& next,
                char* data) {
  if (node.kind == Kind::kTensor) {
    const at::Tensor& from = tensors[next++];
    const auto options = at::TensorOptions().dtype(from.scalar_type());
    at::from_blob(data + node.offset, node.shape, options).copy_(from);
  }
  for (const BatchNode& child : node.children) write_node(child, tensors, next, data);
}

}  // namespace

c10::ScalarType scalar_type(ElementType type) {
  return kScalarTypes[static_cast<std::size_t>(type)];
}

TakenBatch take_batch(py::handle value) {
  TakenBatch batch;
  batch.root = Taker(batch).take(value, "");
  batch.data_bytes = place_tensors(batch.root);
  return batch;
}

void write_tensors(const TakenBatch& batch, char* data) {
  std::size_t next = 0;
  write_node(batch.root, batch.tensors, next, data);
}

py::object make_batch(const BatchNode& node,
                      const std::function<at::Tensor(const BatchNode&)>& tensor_at) {
  switch (node.kind) {
    case Kind::kNone:
      return py::none();
    case Kind::kBool:
      return py::bool_(node.integer != 0);
    case Kind::kInteger:
      return py::int_(node.integer);
    case Kind::kReal:
      return py::float_(node.real);
    case Kind::kText:
      return py::str(node.text);
    case Kind::kTensor:
      return py::cast(tensor_at(node));
    case Kind::kDictionary: {
      py::dict dictionary;
      for (std::size_t i = 0; i + 1 < node.children.size(); i += 2) {
        dictionary[make_batch(node.children[i], tensor_at)] =
            make_batch(node.children[i + 1], tensor_at);
      }
      return dictionary;
    }
    case Kind::kList:
    case Kind::kTuple:
      break;
  }
  py::list list;
  for (const BatchNode& child : node.children) list.append(make_batch(child, tensor_at));
  if (node.kind == Kind::kTuple) return py::tuple(list);
  return list;
}

}  // namespace regen
