#include "cli/runtime/left_behind.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ne.h>

#include <bit>
#include <cstdio>
#include <cstring>

namespace regen::cli {
namespace {

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

std::string difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return "has another shape";
  const std::string count = std::to_string(at::ne(a, b).sum().item<std::int64_t>()) + " of " +
                            std::to_string(a.numel()) + " elements";
  if (!at::isFloatingType(a.scalar_type())) return "differs in " + count;
  const double most = (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", most);
  return "differs in " + count + ", by up to " + text;
}

// The storage in the type of the first value that the program sees in it, so that differences can
// be given in numbers.
at::Tensor typed(const execute::Program& program, execute::StorageId storage,
                 const at::Tensor& bytes) {
  for (const execute::ValueSpec& value : program.values) {
    if (value.storage != storage) continue;
    const auto item = static_cast<std::int64_t>(c10::elementSize(value.dtype));
    if (bytes.numel() % item != 0) break;
    return execute::make_view({storage, value.dtype, {bytes.numel() / item}, {1}, 0},
                              bytes.storage());
  }
  return bytes;
}

void add_changed(const PreparedStep& prepared, std::vector<LeftTensor>& left) {
  const execute::Program& program = prepared.program();
  for (std::size_t s = 0; s < prepared.data->size(); ++s) {
    const execute::StorageSpec& spec = program.storages[execute::StorageId(s)];
    const at::Tensor& bytes = prepared.data->tensor(execute::StorageId(s));
    const bool may_change = spec.role == execute::Role::kParameter ||
                            spec.role == execute::Role::kBuffer ||
                            spec.role == execute::Role::kState;
    if (!may_change || !bytes.defined()) continue;
    left.push_back(
        {std::string(to_string(spec.role)), spec.name,
         typed(program, execute::StorageId(s), bytes).to(at::kCPU, false, /*copy=*/true)});
  }
}

}  // namespace

std::vector<LeftTensor> left_behind(const PreparedStep& prepared,
                                    const std::function<at::Tensor(std::size_t)>& result) {
  const execute::Program& program = prepared.program();
  std::vector<LeftTensor> left;
  for (std::size_t r = 0; r < program.results.size(); ++r) {
    const bool gradient = program.results[r].kind == execute::ResultKind::kGradient;
    left.push_back({gradient ? "gradient" : "output", program.results[r].name,
                    result(r).to(at::kCPU, false, /*copy=*/true).contiguous()});
  }
  add_changed(prepared, left);
  at::Generator generator = at::globalContext().defaultGenerator(prepared.device().torch_device());
  left.push_back({"generator", "random numbers", generator.get_state()});
  return left;
}

// Eight bytes at a time: multiply, rotate, add, as fast as memory for what is compared here.
std::uint64_t checksum(const at::Tensor& tensor) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  const at::Tensor flat = tensor.contiguous();
  const auto* bytes = static_cast<const unsigned char*>(flat.const_data_ptr());
  std::uint64_t sum = kOdd ^ flat.nbytes();
  for (std::size_t i = 0; i < flat.nbytes(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min<std::size_t>(8, flat.nbytes() - i));
    sum = std::rotl(sum ^ (word * kOdd), 29) * kOdd + 1;
  }
  return sum ^ (sum >> 32);
}

std::uint64_t checksum(const std::vector<LeftTensor>& tensors) {
  std::uint64_t sum = tensors.size();
  for (const LeftTensor& left : tensors) sum = std::rotl(sum * 31, 7) ^ checksum(left.tensor);
  return sum;
}

std::string hex(std::uint64_t sum) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(sum));
  return text;
}

std::string first_difference(const std::vector<LeftTensor>& expected,
                             const std::vector<LeftTensor>& found) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (same_bits(expected[i].tensor, found[i].tensor)) continue;
    return expected[i].kind + " '" + expected[i].name + "' " +
           difference(expected[i].tensor, found[i].tensor);
  }
  return "";
}

}  // namespace regen::cli
