#include "choosy_op.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <chrono>
#include <map>
#include <thread>
#include <utility>

namespace regen::execute {
namespace {

constexpr Bytes kMiB = 1 << 20;

using Key = std::pair<std::int64_t, std::int64_t>;  // kind, elements
thread_local std::map<Key, std::size_t> remembered;

void run_algorithm(const at::Tensor& x, const at::Tensor& w, at::Tensor& out, std::int64_t kind,
                   std::size_t number) {
  const ChoosyAlgorithm& algorithm = choosy_algorithms()[static_cast<std::size_t>(kind)][number];
  const c10::DataPtr scratch =
      c10::GetCPUAllocator()->allocate(static_cast<std::size_t>(algorithm.scratch));
  // The first and the last byte are enough to be caught writing to the memory of others.
  if (algorithm.scratch > 0) {
    static_cast<char*>(scratch.get())[0] = 0x5a;
    static_cast<char*>(scratch.get())[algorithm.scratch - 1] = 0x5a;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(algorithm.milliseconds));
  const float* a = x.const_data_ptr<float>();
  const float* b = w.const_data_ptr<float>();
  float* c = out.mutable_data_ptr<float>();
  const float mark = static_cast<float>(number) / 8;
  for (std::int64_t i = 0; i < x.numel(); ++i) c[i] = a[i] * b[i] + mark;
}

bool try_algorithm(const at::Tensor& x, const at::Tensor& w, at::Tensor& out, std::int64_t kind,
                   std::size_t number) {
  try {
    run_algorithm(x, w, out, kind, number);
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

at::Tensor choosy(const at::Tensor& x, const at::Tensor& w, std::int64_t kind,
                  std::array<bool, 1> /*mask*/) {
  at::Tensor out = at::empty_like(x);
  const Key key{kind, x.numel()};
  const auto known = remembered.find(key);
  if (known != remembered.end() && try_algorithm(x, w, out, kind, known->second)) return out;
  const std::size_t count = choosy_algorithms()[static_cast<std::size_t>(kind)].size();
  for (std::size_t number = 0; number < count; ++number) {
    if (!try_algorithm(x, w, out, kind, number)) continue;
    remembered[key] = number;
    return out;
  }
  TORCH_CHECK(false, "no algorithm can do with so little");
}

TORCH_LIBRARY(regen_test, library) {
  library.def("choosy(Tensor x, Tensor w, int kind, bool[1] mask) -> Tensor");
  library.impl("choosy", c10::DispatchKey::CPU, TORCH_FN(choosy));
}

}  // namespace

const std::vector<std::vector<ChoosyAlgorithm>>& choosy_algorithms() {
  static const std::vector<std::vector<ChoosyAlgorithm>> kinds = {
      {{4 * kMiB, 0}, {2 * kMiB, 25}, {0, 75}},  // three ways, each with its use
      {{4 * kMiB, 0}, {2 * kMiB, 75}, {0, 25}},  // the second is beaten by the third
      {{4 * kMiB, 0}},                           // no way around it
      // Many.
      {{16 * kMiB, 0}, {12 * kMiB, 25}, {8 * kMiB, 50}, {4 * kMiB, 75}, {kMiB / 2, 100}},
  };
  return kinds;
}

void forget_choosy() {
  remembered.clear();
}

}  // namespace regen::execute
