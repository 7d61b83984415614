#include "regen/session/budget.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "regen/execute/device/memory_meter.h"
#include "regen/session/runtime_reserve.h"

namespace regen::session {
namespace {

// 1000 %: above it a fraction is a slip of the pen.
constexpr double kMostPercent = 1000;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) {
    text.remove_suffix(1);
  }
  return text;
}

bool names_device(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower == "device" || lower == "auto";
}

std::string quoted(std::string_view text) {
  return "'" + std::string(text.substr(0, 60)) + "'";
}

// What a step that starts now could have: what is free, and what torch holds already.
Result<Bytes> free_bytes(execute::ExecutionDevice& device) {
  REGEN_ASSIGN(const execute::DeviceMemory memory, device.memory());
  REGEN_ASSIGN(const execute::MemoryUse use, execute::memory_use(device.torch_device()));
  return std::max<Bytes>(1, memory.free + use.reserved - runtime_reserve(device).kernels);
}

}  // namespace

Result<Budget> Budget::parse(std::string_view text) {
  const std::string_view word = trimmed(text);
  if (names_device(word)) return Budget(Kind::kDevice, 0, quoted(text));
  if (word.ends_with('%')) {
    const auto percent = parse_double(word.substr(0, word.size() - 1));
    if (!percent.ok() || *percent < 0 || *percent > kMostPercent) {
      return bad_input("bad fraction " + quoted(text) + ", expected such as 50%");
    }
    return Budget(Kind::kPercent, *percent, quoted(text));
  }
  REGEN_ASSIGN(const Bytes bytes, parse_bytes(word));
  return Budget(Kind::kBytes, static_cast<double>(bytes), quoted(text));
}

Result<Budget> Budget::from_fraction(double fraction) {
  if (!(fraction > 0) || fraction > 1) {
    return bad_input("a budget of " + format_exact(fraction) +
                     " of the unplanned peak, expected a fraction above 0 and at most 1");
  }
  return Budget(Kind::kFraction, fraction, format_exact(fraction));
}

Budget Budget::from_bytes(Bytes bytes) {
  return Budget(Kind::kBytes, static_cast<double>(bytes), std::to_string(bytes));
}

Budget Budget::of_device() {
  return Budget(Kind::kDevice, 0, "'device'");
}

Result<Bytes> Budget::bytes(Bytes unplanned, execute::ExecutionDevice& device) const {
  const auto whole = static_cast<double>(unplanned);
  switch (kind_) {
    case Kind::kFraction:
      return static_cast<Bytes>(value_ * whole);
    case Kind::kPercent:
      return static_cast<Bytes>(whole * value_ / 100);
    case Kind::kDevice:
      return free_bytes(device);
    case Kind::kBytes:
      break;
  }
  return static_cast<Bytes>(value_);  // exact up to kMaxBytes
}

Result<std::optional<Bytes>> allowed_bytes(const std::optional<Budget>& budget,
                                           const std::optional<JobBytes>& job, Bytes unplanned,
                                           execute::ExecutionDevice& device) {
  if (!budget) return job ? std::optional(job->limit) : std::nullopt;
  REGEN_ASSIGN(const Bytes size, budget->bytes(unplanned, device));
  if (!job) return std::optional(size);
  if (size > job->admitted && !budget->is_device()) {
    return infeasible("budget=" + budget->text() + " is " + format_grouped(size) +
                      " bytes, more than the " + format_grouped(job->admitted) + " that job '" +
                      job->name + "' was admitted with (--memory); expected at most those");
  }
  return std::optional(std::min(size, job->limit));
}

}  // namespace regen::session
