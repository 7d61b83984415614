// Real operators with every allocation at a chosen address: bitwise the same results.
#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "regen/base/random.h"
#include "regen/execute/device/device.h"
#include "regen/execute/placement/placement.h"

namespace regen::execute {
namespace {

using Tensors = std::vector<at::Tensor>;
using Options = at::TensorOptions;

// An operator with its inputs; every call gives the same results.
struct Case {
  std::string name;
  std::function<std::function<Tensors()>(const Options&)> make;
};

Tensors list(const at::Tensor& tensor) {
  return {tensor};
}
Tensors list(const std::tuple<at::Tensor, at::Tensor>& t) {
  return {std::get<0>(t), std::get<1>(t)};
}
Tensors list(const std::tuple<at::Tensor, at::Tensor, at::Tensor>& t) {
  return {std::get<0>(t), std::get<1>(t), std::get<2>(t)};
}

at::Tensor image(const Options& o) {
  return at::randn({2, 8, 12, 12}, o);
}

std::vector<Case> cases() {
  return {
      {"convolution",
       [](const Options& o) {
         return [x = image(o), w = at::randn({16, 8, 3, 3}, o), b = at::randn({16}, o)] {
           return list(at::convolution(x, w, b, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1));
         };
       }},
      {"convolution_backward",
       [](const Options& o) {
         return [x = image(o), w = at::randn({16, 8, 3, 3}, o), g = at::randn({2, 16, 12, 12}, o)] {
           const std::vector<int64_t> bias = {16};
           return list(at::convolution_backward(g, x, w, at::IntArrayRef(bias), {1, 1}, {1, 1},
                                                {1, 1}, false, {0, 0}, 1, {true, true, true}));
         };
       }},
      {"batch_norm",
       [](const Options& o) {
         return [x = image(o), w = at::randn({8}, o), b = at::randn({8}, o)] {
           return list(at::native_batch_norm(x, w, b, {}, {}, true, 0.1, 1e-5));
         };
       }},
      {"batch_norm_backward",
       [](const Options& o) {
         const auto x = image(o);
         const auto w = at::randn({8}, o);
         const auto forward =
             at::native_batch_norm(x, w, at::randn({8}, o), {}, {}, true, 0.1, 1e-5);
         return [x, w, mean = std::get<1>(forward), scale = std::get<2>(forward), g = image(o)] {
           return list(at::native_batch_norm_backward(g, x, w, {}, {}, mean, scale, true, 1e-5,
                                                      {true, true, true}));
         };
       }},
      {"relu", [](const Options& o) { return [x = image(o)] { return list(at::relu(x)); }; }},
      {"max_pool",
       [](const Options& o) {
         return [x = image(o)] {
           return list(at::max_pool2d_with_indices(x, {3, 3}, {2, 2}, {1, 1}));
         };
       }},
      {"max_pool_backward",
       [](const Options& o) {
         const auto x = image(o);
         const auto y = at::max_pool2d_with_indices(x, {3, 3}, {2, 2}, {1, 1});
         return [x, indices = std::get<1>(y), g = at::randn({2, 8, 6, 6}, o)] {
           return list(at::max_pool2d_with_indices_backward(g, x, {3, 3}, {2, 2}, {1, 1}, {1, 1},
                                                            false, indices));
         };
       }},
      {"addmm",
       [](const Options& o) {
         return [b = at::randn({32}, o), x = at::randn({24, 48}, o), w = at::randn({48, 32}, o)] {
           return list(at::addmm(b, x, w));
         };
       }},
      {"embedding_backward",
       [](const Options& o) {
         return [g = at::randn({20, 16}, o), index = at::randint(50, {20}, o.dtype(at::kLong))] {
           return list(at::embedding_dense_backward(g, index, 50, -1, false));
         };
       }},
      {"topk",
       [](const Options& o) {
         return [x = at::randn({30, 40}, o)] { return list(at::topk(x, 5)); };
       }},
      {"sum",
       [](const Options& o) {
         return [x = at::randn({64, 640}, o)] { return list(at::sum(x, {0}, false)); };
       }},
      {"layer_norm",
       [](const Options& o) {
         return [x = at::randn({10, 48}, o), w = at::randn({48}, o), b = at::randn({48}, o)] {
           return list(at::native_layer_norm(x, {48}, w, b, 1e-5));
         };
       }},
      {"dropout",
       [](const Options& o) {
         return [x = at::randn({33, 17}, o)] {
           at::manual_seed(7);
           return list(at::native_dropout(x, 0.5, true));
         };
       }},
      {"attention",
       [](const Options& o) {
         const auto make = [&] { return at::randn({2, 4, 32, 16}, o); };
         return [q = make(), k = make(), v = make()] {
           if (q.is_cuda()) return list(at::scaled_dot_product_attention(q, k, v));
           return list(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true));
         };
       }},
      {"attention_composed",
       [](const Options& o) {
         const auto make = [&] { return at::randn({2, 4, 32, 16}, o); };
         return [q = make(), k = make(), v = make()] {
           return list(at::_scaled_dot_product_attention_math(q, k, v));
         };
       }},
      {"nll_loss",
       [](const Options& o) {
         return [x = at::log_softmax(at::randn({12, 10}, o), 1),
                 y = at::randint(10, {12}, o.dtype(at::kLong))] {
           return list(at::nll_loss_forward(x, y, {}, at::Reduction::Mean, -100));
         };
       }},
      {"sort",
       [](const Options& o) {
         return [x = at::randn({30, 40}, o)] { return list(at::sort(x, 0)); };
       }},
  };
}

// The CPU, and a GPU where there is one.
std::vector<std::string> devices() {
#ifdef REGEN_WITH_CUDA
  if (at::hasCUDA()) return {"cpu", "cuda"};
#endif
  return {"cpu"};
}

std::vector<RecordedAllocation> record(c10::Device device, const std::function<Tensors()>& call,
                                       Tensors& results) {
  auto scope = RecordingScope::enter(device).value();
  scope.start();
  results = call();
  return scope.stop();
}

void expect_bitwise_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].sizes(), b[i].sizes());
    ASSERT_EQ(a[i].strides(), b[i].strides());
    const auto x = a[i].cpu().contiguous();
    const auto y = b[i].cpu().contiguous();
    EXPECT_EQ(std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()), 0) << "result " << i;
  }
}

class Replay : public ::testing::TestWithParam<std::tuple<std::string, Case>> {
 protected:
  Replay() : device_(open_device(std::get<0>(GetParam())).value()) {
    at::globalContext().setDeterministicCuDNN(true);
    at::manual_seed(3);
    call_ = std::get<1>(GetParam()).make(Options().device(where()));
    plain_ = call_();  // the first call; libraries take memory for good there
    recorded_ = record(where(), call_, results_);
  }

  Bytes rounded(Bytes bytes) const {
    const Bytes step = device_->alignment();
    return (bytes + step - 1) / step * step;
  }
  c10::Device where() const { return device_->torch_device(); }

  // Runs the operator with its allocations at these offsets of a poisoned arena.
  void replay_at(const std::vector<Bytes>& offsets, Bytes size) {
    const auto arena = device_->allocate_arena(size).value();
    at::from_blob(arena.data(), {size}, Options().dtype(at::kByte).device(where())).fill_(0xff);
    Reserve reserve;
    std::vector<PlacedSlot> slots;
    for (std::size_t i = 0; i < offsets.size(); ++i)
      slots.push_back({recorded_[i].bytes, arena.at(offsets[i])});

    Tensors replayed;
    {
      auto scope = PlacementScope::enter(where(), reserve).value();
      scope.serve(slots, "op");
      replayed = call_();
      EXPECT_EQ(scope.finish(), 0u);
      EXPECT_TRUE(scope.deviations().empty());
    }
    expect_bitwise_equal(plain_, replayed);
    device_->synchronize();
    for (std::size_t i = 0; i < replayed.size(); ++i) {
      const int place = find_allocation(recorded_, results_[i].storage().data());
      ASSERT_GE(place, 0);
      EXPECT_EQ(replayed[i].storage().data(), slots[static_cast<std::size_t>(place)].address);
    }
  }

  std::shared_ptr<ExecutionDevice> device_;
  std::function<Tensors()> call_;
  Tensors plain_;
  Tensors results_;  // of the recorded call, so that their addresses are not used again
  std::vector<RecordedAllocation> recorded_;
};

TEST_P(Replay, RecordsTheSameSequenceEveryTime) {
  ASSERT_FALSE(recorded_.empty());
  for (int i = 0; i < 3; ++i) {
    Tensors results;
    const auto again = record(where(), call_, results);
    ASSERT_EQ(again.size(), recorded_.size());
    for (std::size_t k = 0; k < again.size(); ++k) {
      EXPECT_EQ(again[k].bytes, recorded_[k].bytes);
      EXPECT_EQ(again[k].birth, recorded_[k].birth);
      EXPECT_EQ(again[k].death, recorded_[k].death);
    }
  }
}

TEST_P(Replay, FindsEveryResultByItsAddress) {
  for (const auto& result : results_) {
    const int place = find_allocation(recorded_, result.storage().data());
    ASSERT_GE(place, 0);
    EXPECT_EQ(recorded_[static_cast<std::size_t>(place)].bytes,
              static_cast<Bytes>(result.storage().nbytes()));
  }
}

TEST_P(Replay, IsBitwiseEqualAtScatteredAddresses) {
  std::vector<std::size_t> order(recorded_.size());
  std::iota(order.begin(), order.end(), 0);
  Random random(11);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1],
              order[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i) - 1))]);
  std::vector<Bytes> offsets(recorded_.size());
  Bytes end = 0;
  for (const std::size_t i : order) {
    offsets[i] = end + device_->alignment() * random.between(1, 20);
    end = offsets[i] + rounded(recorded_[i].bytes);
  }
  replay_at(offsets, end);
}

// Memory that an operator gives back is used again by its later allocations.
TEST_P(Replay, IsBitwiseEqualWhenLifetimesShareAddresses) {
  const auto overlap = [&](std::size_t i, std::size_t j) {
    return recorded_[i].birth < recorded_[j].death && recorded_[j].birth < recorded_[i].death;
  };
  std::vector<Bytes> offsets(recorded_.size(), 0);
  Bytes size = 0;
  const auto end = [&](std::size_t i) { return offsets[i] + rounded(recorded_[i].bytes); };
  for (std::size_t i = 0; i < recorded_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(i, j)) offsets[i] = std::max(offsets[i], end(j));
    }
    size = std::max(size, end(i));
  }
  replay_at(offsets, size);
}

INSTANTIATE_TEST_SUITE_P(Operators, Replay,
                         ::testing::Combine(::testing::ValuesIn(devices()),
                                            ::testing::ValuesIn(cases())),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
                         });

}  // namespace
}  // namespace regen::execute
