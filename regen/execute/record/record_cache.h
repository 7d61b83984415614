// Calls seen before on a device, by operator, arguments, shapes, types and strides, so that a
// second model with the same layers needs no new measurements.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "regen/base/json.h"
#include "regen/base/result.h"
#include "regen/base/units.h"

namespace regen::execute {

// Where the memory of a result comes from.
// Some operators return numbers on the host though they run elsewhere (the seed of an attention's
// dropout).
enum class ResultSource : std::uint8_t { kUndefined, kAllocation, kArgument, kHost };

struct ResultLayout {
  ResultSource source = ResultSource::kUndefined;
  std::size_t index = 0;  // of the allocation, or of the tensor among the call's tensor arguments
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;

  bool operator==(const ResultLayout&) const = default;
};

// One allocation of a call; moments count allocations and frees from 0. One that outlives the
// call ends at kForever.
struct CallAllocation {
  static constexpr std::int64_t kForever = INT64_MAX;
  Bytes bytes = 0;
  std::int64_t birth = 0;
  std::int64_t death = kForever;

  bool operator==(const CallAllocation&) const = default;
};

// Another way to run a call: what it does when it is refused requests above a cap. Its results are
// those of the call, and what it allocates for them comes in the same order.
struct CallAlternative {
  Bytes cap = 0;
  double seconds = 0;
  std::vector<CallAllocation> allocations;

  bool operator==(const CallAlternative&) const = default;
};

struct CallRecord {
  double seconds = 0;
  std::vector<CallAllocation> allocations;
  std::vector<ResultLayout> results;
  // With falling caps; absent if they were not looked for.
  std::optional<std::vector<CallAlternative>> alternatives;
  // Tensor arguments whose memory the first result may take over; absent if not looked for.
  std::optional<std::vector<std::size_t>> overwritable;
  // Of the shorter call that makes the first result again; absent if there is none.
  std::optional<double> shorter_seconds;

  bool operator==(const CallRecord&) const = default;
};

class RecordCache {
 public:
  const CallRecord* find(const std::string& key) const;
  void insert(const std::string& key, CallRecord record);
  std::size_t size() const { return records_.size(); }
  bool changed() const { return changed_; }  // since it was loaded or saved

  // A file that is absent is an empty cache; one of another device or version is refused.
  static Result<RecordCache> load(const std::string& path, const std::string& device);
  // Adds to the file what it lacks, and takes over all that it has. Others may have measured the
  // same calls at the same time: the first to write is right, so that all processes that share the
  // file have the same times; but a record with alternatives replaces one without.
  // True if a record was here with other times than it has now.
  Result<bool> save(const std::string& path, const std::string& device);

 private:
  Status write(const std::string& path, const std::string& device) const;

  std::map<std::string, CallRecord> records_;
  bool changed_ = false;
};

}  // namespace regen::execute
