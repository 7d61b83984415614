// A budget as people write it, and the bytes that it stands for.
//
//   "6GiB", "16e9", 6442450944   bytes
//   0.5, "50%"                   a fraction of what the step takes when everything is kept
//   "device" (or "auto")         what is free on the device
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/execute/device/device.h"

namespace regen::session {

class Budget {
 public:
  static Result<Budget> parse(std::string_view text);
  // Above 0 and up to 1.
  static Result<Budget> from_fraction(double fraction);
  static Budget from_bytes(Bytes bytes);
  static Budget of_device();

  bool is_device() const { return kind_ == Kind::kDevice; }
  // `unplanned`: of which a fraction is taken.
  Result<Bytes> bytes(Bytes unplanned, execute::ExecutionDevice& device) const;
  // As it was written, for messages.
  const std::string& text() const { return text_; }

  bool operator==(const Budget&) const = default;

 private:
  enum class Kind : std::uint8_t { kBytes, kFraction, kPercent, kDevice };
  Budget(Kind kind, double value, std::string text)
      : kind_(kind), value_(value), text_(std::move(text)) {}

  Kind kind_;
  double value_;
  std::string text_;
};

// The bytes of a job that shares its device.
struct JobBytes {
  std::string name;
  Bytes admitted = 0;  // what the job asked for
  Bytes limit = 0;     // what it may use now

  bool operator==(const JobBytes&) const = default;
};

// What a step may take: its budget within the bytes of its job. Absent when there is neither. A
// budget above what the job was admitted with is refused, unless it is the device's.
Result<std::optional<Bytes>> allowed_bytes(const std::optional<Budget>& budget,
                                           const std::optional<JobBytes>& job, Bytes unplanned,
                                           execute::ExecutionDevice& device);

}  // namespace regen::session
