#include "python/feed_binding.h"

#include <ATen/ops/from_blob.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "python/feed_batch.h"
#include "python/runtime_errors.h"
#include "regen/execute/device/device_ring.h"
#include "regen/share/input/feed_address.h"
#include "regen/share/input/feed_client.h"
#include "regen/share/input/feed_server.h"

namespace py = pybind11;

namespace regen {
namespace {

using share::BatchNode;
using share::FeedItem;
using share::Position;

// The producer: the server, and on a GPU the ring that mirrors its slots.
class Producer {
 public:
  Producer(const std::string& path, const std::string& settings, std::int64_t epochs,
           std::int64_t consumers, std::int64_t epoch, std::int64_t index)
      : server_(value_or_raise(share::FeedServer::open(path, {.settings = settings,
                                                              .epochs = epochs,
                                                              .first_consumers = consumers,
                                                              .start = {epoch, index}}))) {}

  // gpu: the index of a CUDA device, or -1 for none.
  void start(std::uint32_t slots, std::uint64_t slot_bytes, int gpu) {
    std::string extras;
    if (gpu >= 0) {
      slot_bytes = (slot_bytes + 4095) / 4096 * 4096;
      ring_ =
          value_or_raise(execute::DeviceRing::create(gpu, static_cast<Bytes>(slots * slot_bytes)));
      extras = ring_->handle();
    }
    check(server_.start(slots, slot_bytes, extras));
  }

  std::optional<std::tuple<std::int64_t, std::int64_t, bool>> begin() {
    const py::gil_scoped_release release;
    fill_ = server_.begin();
    if (!fill_) return std::nullopt;
    return std::tuple(fill_->position.epoch, fill_->position.index, fill_->jumped);
  }

  void publish(py::handle value) {
    const TakenBatch batch = take_batch(value);
    const py::gil_scoped_release release;
    char* data = value_or_raise(server_.place(encode_layout(batch.root), batch.data_bytes));
    write_tensors(batch, data);
    if (ring_ != nullptr) {
      const auto offset = static_cast<Bytes>(fill_->slot * server_.slot_bytes());
      check(ring_->copy_in(offset, data, static_cast<Bytes>(batch.data_bytes)));
    }
    server_.publish();
  }

  void end_epoch() { check(server_.end_epoch()); }
  void fail(const std::string& text) {
    const py::gil_scoped_release release;
    server_.fail(text);
  }

 private:
  share::FeedServer server_;
  std::shared_ptr<execute::DeviceRing> ring_;
  std::optional<share::FeedQueue::Fill> fill_;
};

// Ctrl-C while waiting: Python is asked, and its exception is the one that goes on.
bool signal_raised() {
  const py::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

using Lease = std::shared_ptr<share::FeedLease>;

class Consumer {
 public:
  // start(epoch, index) starts a producer there, and returns once it listens.
  Consumer(const std::string& path, const std::string& settings, bool skip, bool whole_epochs,
           py::function start)
      : start_(std::move(start)) {
    const share::FeedRequest request{
        .path = path,
        .settings = settings,
        .policy = skip ? share::SlowPolicy::kSkip : share::SlowPolicy::kWait,
        .join = whole_epochs ? share::Join::kEpoch : share::Join::kNow};
    const auto starter = [this](Position position) { return call_start(position); };
    auto client = [&] {
      const py::gil_scoped_release release;
      return share::FeedClient::attach(request, starter, signal_raised);
    }();
    client_.emplace(checked(std::move(client)));
  }

  // (kind, epoch, index, lost, batch); kinds are "batch", "epoch_end", "end".
  py::tuple next() {
    share::FeedEvent event = checked([&] {
      const py::gil_scoped_release release;
      return client_->next();
    }());
    const auto [epoch, index] = event.position;
    if (event.kind == FeedItem::Kind::kEnd)
      return py::make_tuple("end", epoch, index, 0, py::none());
    if (event.kind == FeedItem::Kind::kEpochEnd) {
      return py::make_tuple("epoch_end", epoch, index, event.lost, py::none());
    }
    return py::make_tuple("batch", epoch, index, event.lost, batch_of(event));
  }

  void move(std::int64_t epoch) { check(client_->move({epoch, 0})); }
  void leave() { client_->leave(); }
  int losses() const { return client_->losses(); }

 private:
  // An exception of Python that came up meanwhile is the reason of the error.
  template <typename T>
  T checked(Result<T> result) {
    if (raised_) std::rethrow_exception(std::exchange(raised_, nullptr));
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    return value_or_raise(std::move(result));
  }

  Status call_start(Position position) {
    const py::gil_scoped_acquire acquire;
    try {
      start_(position.epoch, position.index);
      return {};
    } catch (py::error_already_set&) {
      raised_ = std::current_exception();
      return bad_input("the producer was not started");
    }
  }

  py::object batch_of(const share::FeedEvent& event) {
    const share::FeedConnection& connection = event.lease->connection();
    if (connection.extras.empty()) {
      return make_batch(event.layout,
                        [&](const BatchNode& node) { return host_tensor(event.lease, node); });
    }
    if (ring_handle_ != connection.extras) {
      ring_ = value_or_raise(execute::DeviceRing::open(connection.extras));
      ring_handle_ = connection.extras;
    }
    // The last of the batch's tensors gives it back, after the work that reads it.
    const std::shared_ptr<execute::DeviceRing> ring = ring_;
    const auto use = std::shared_ptr<Lease>(new Lease(event.lease), [ring](Lease* lease) {
      ring->after_present_work([](void* done) { delete static_cast<Lease*>(done); }, lease);
    });
    char* slot = ring->data() + event.lease->slot() * connection.view.slot_bytes();
    return make_batch(event.layout, [&](const BatchNode& node) {
      const auto options = at::TensorOptions().dtype(scalar_type(node.type)).device(ring->device());
      return at::from_blob(
          slot + node.offset, node.shape, [use](void*) {}, options);
    });
  }

  static at::Tensor host_tensor(const Lease& lease, const BatchNode& node) {
    const auto options = at::TensorOptions().dtype(scalar_type(node.type));
    return at::from_blob(
        lease->batch().data + node.offset, node.shape, [lease](void*) {}, options);
  }

  py::function start_;
  std::exception_ptr raised_;
  std::optional<share::FeedClient> client_;
  std::shared_ptr<execute::DeviceRing> ring_;
  std::string ring_handle_;
};

}  // namespace

void bind_feed(py::module_& module) {
  py::class_<Producer>(module, "FeedProducer")
      .def(py::init<const std::string&, const std::string&, std::int64_t, std::int64_t,
                    std::int64_t, std::int64_t>())
      .def("start", &Producer::start)
      .def("begin", &Producer::begin)
      .def("publish", &Producer::publish)
      .def("end_epoch", &Producer::end_epoch)
      .def("fail", &Producer::fail);
  py::class_<Consumer>(module, "FeedConsumer")
      .def(py::init<const std::string&, const std::string&, bool, bool, py::function>())
      .def("next", &Consumer::next)
      .def("move", &Consumer::move)
      .def("leave", &Consumer::leave)
      .def_property_readonly("losses", &Consumer::losses);
  module.def("feed_socket",
             [](const std::string& name) { return value_or_raise(share::feed_socket(name)); });
  // The bytes that a slot needs for the batch.
  module.def("feed_batch_bytes", [](py::handle value) {
    const TakenBatch batch = take_batch(value);
    return batch.data_bytes + encode_layout(batch.root).size() + 2 * share::kSlotHeadBytes;
  });
}

}  // namespace regen
