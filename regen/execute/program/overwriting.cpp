#include "regen/execute/program/overwriting.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>

#include "regen/execute/placement/placement.h"

namespace regen::execute {
namespace {

constexpr Bytes kMostBeside = Bytes{64} << 20;  // that a trial may take for other allocations
// Differences below are noise. On a CPU, which others use too, all are.
constexpr double kAsFast = 1.03;
constexpr double kMoment = 3e-6;
constexpr std::int64_t kComparedAtOnce = 1 << 25;  // bytes: comparing takes memory as well

std::int64_t count_items(const std::vector<std::int64_t>& sizes) {
  std::int64_t items = 1;
  for (const std::int64_t size : sizes) items *= size;
  return items;
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  return at::empty({0}, tensor.options().dtype(at::kByte)).set_(tensor.storage(), 0, {bytes}, {1});
}

bool same_results(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bytes);
}

// Everything but the first result, which is to lie elsewhere.
Bytes bytes_beside(const CallRecord& call) {
  Bytes sum = 0;
  for (std::size_t k = 0; k < call.allocations.size(); ++k) {
    if (k != call.results[0].index) sum += call.allocations[k].bytes;
  }
  return sum;
}

// So that each element matters: with masks of zeros, say, half of the arguments would not.
void vary_contents(const std::vector<at::Tensor>& memory) {
  for (const at::Tensor& contents : memory) {
    if (contents.is_floating_point()) {
      contents.uniform_(-1, 1);
    } else if (contents.scalar_type() == at::kBool) {
      contents.random_(0, 2);
    } else if (at::isIntegralType(contents.scalar_type(), false)) {
      contents.random_(1, 8);
    }
  }
}

Result<bool> passes_in_place(const TrialCall& trial, const CallRecord& call, std::size_t storage,
                             c10::Device device) {
  vary_contents(trial.memory);
  const std::vector<at::Tensor> expected = trial.run();
  std::vector<at::Tensor> beside;
  std::vector<PlacedSlot> slots;
  for (std::size_t k = 0; k < call.allocations.size(); ++k) {
    const Bytes bytes = call.allocations[k].bytes;
    if (k == call.results[0].index) {
      slots.push_back({bytes, trial.memory[storage].storage().mutable_data(), false, true});
      continue;
    }
    beside.push_back(at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device)));
    slots.push_back({bytes, beside.back().data_ptr()});
  }
  Reserve nothing;
  REGEN_ASSIGN(PlacementScope scope, PlacementScope::enter(device, nothing));
  const auto run_in_place = [&] {
    scope.serve(slots, "trial");
    auto results = trial.run();
    scope.finish();
    return results;
  };
  try {
    const bool same = same_results(expected, run_in_place());
    if (!same || !scope.deviations().empty()) return false;
    if (device.is_cpu()) return true;
    const double fresh = std::max(call.seconds, trial.time([&] { trial.run(); }));
    return trial.time(run_in_place) <= kAsFast * fresh + kMoment;
  } catch (const c10::OutOfMemoryError&) {
    scope.finish();
    return false;  // it asked for something else than before
  }
}

}  // namespace

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.strides() != b.strides() || a.storage().nbytes() != b.storage().nbytes()) return false;
  const at::Tensor of_a = bytes_of(a);
  const at::Tensor of_b = bytes_of(b);
  for (std::int64_t from = 0; from < of_a.numel(); from += kComparedAtOnce) {
    const std::int64_t length = std::min(kComparedAtOnce, of_a.numel() - from);
    if (!at::equal(of_a.narrow(0, from, length), of_b.narrow(0, from, length))) return false;
  }
  return true;
}

bool laid_out_as_first_result(const Program& program, const CallArguments& arguments,
                              std::size_t storage, const CallRecord& call) {
  if (call.results.empty() || call.results[0].source != ResultSource::kAllocation) return false;
  const ResultLayout& result = call.results[0];
  if (result.index >= call.allocations.size() || result.offset != 0) return false;
  const StorageId id = arguments.storages()[storage];
  std::vector<ValueId> readers;
  for (const ValueId value : arguments.values()) {
    if (program.values[value].storage == id) readers.push_back(value);
  }
  if (readers.size() != 1 || !program.storages[id].device.empty()) return false;
  const ValueSpec& value = program.values[readers[0]];
  const auto item = static_cast<Bytes>(c10::elementSize(value.dtype));
  const Bytes bytes = count_items(value.sizes) * item;
  // Compilers make two loops of a kernel of complex numbers, with other roundings, and the loop that
  // runs depends on whether the result lies where an argument does. With a few numbers a trial would
  // not show it.
  if (c10::isComplexType(value.dtype)) return false;
  return value.dtype == result.dtype && value.sizes == result.sizes &&
         value.strides == result.strides && value.offset == 0 && bytes > 0 &&
         bytes == program.storages[id].bytes && bytes == call.allocations[result.index].bytes;
}

Result<std::vector<std::size_t>> find_overwritable(const TrialCall& trial, const CallRecord& call,
                                                   const std::vector<std::size_t>& candidates,
                                                   c10::Device device) {
  std::vector<std::size_t> passed;
  if (candidates.empty() || bytes_beside(call) > kMostBeside) return passed;
  for (const std::size_t storage : candidates) {
    REGEN_ASSIGN(const bool passes, passes_in_place(trial, call, storage, device));
    if (passes) passed.push_back(storage);
  }
  return passed;
}

}  // namespace regen::execute
