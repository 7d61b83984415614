// Calls seen before on a device, by operator, arguments, shapes, types and strides, so that a
// second model with the same layers needs no new measurements.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/cache_folder.h"
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

// The files of a cache folder, one for each device and version of torch.
inline constexpr CacheKind kProfiles{"measurement", "profile-", std::size_t{64} << 20, 16,
                                     std::size_t{256} << 20};

class RecordCache {
 public:
  const CallRecord* find(const std::string& key) const;
  // As measured here. What comes from a file may describe another call (record_check.h).
  void insert(const std::string& key, CallRecord record);
  bool measured_here(const std::string& key) const { return own_.contains(key); }
  // Some were not measured here.
  bool has_foreign() const { return own_.size() < records_.size(); }
  // What this process uses stays when the file must become smaller.
  void note_used(const std::string& key) { used_.insert(key); }
  std::size_t size() const { return records_.size(); }
  bool changed() const { return changed_; }  // since it was loaded or saved

  // The first problem of a record is an error, unless `on_problem` is there to be called with it:
  // then the file is as if it did not have the record.
  using OnProblem = std::function<void(const Error&)>;
  static Result<RecordCache> parse(std::string_view text, std::string_view source,
                                   const std::string& device, const OnProblem& on_problem = {});
  std::string text(const std::string& device) const;

  // What a folder of caches knows. Whatever is wrong with a file is the folder's warning, and as if
  // there were none.
  static RecordCache load(CacheFolder& folder, const CacheKind& kind, const std::string& name,
                          const std::string& device);
  // Adds to the file what it lacks, and takes over all that it has. Others may have measured the
  // same calls at the same time: the first to write is right, so that all processes that share the
  // file have the same times; but a record with alternatives replaces one without, and what was
  // measured here because the file's record did not describe its call replaces that.
  // True if a record was here with other times than it has now.
  bool save(CacheFolder& folder, const CacheKind& kind, const std::string& name,
            const std::string& device);

  // A file by its path, for one that must be right. One that is absent is an empty cache; one of
  // another device or version is refused.
  static Result<RecordCache> load(const std::string& path, const std::string& device);
  Result<bool> save(const std::string& path, const std::string& device);

  // The record of a file does not describe its call: it is not taken from there again.
  void reject(const std::string& key) { rejected_.insert(key); }
  // Likewise, of all calls that were measured here.
  void reject_all() { rejected_ = own_; }

 private:
  bool merge(RecordCache file);
  RecordCache used() const;  // by this process

  std::map<std::string, CallRecord> records_;
  std::set<std::string> own_;  // measured here
  std::set<std::string> used_;
  std::set<std::string> rejected_;  // of the file, found to describe something else
  bool changed_ = false;
};

// The folder and name of a file that a user has named, and the kind that it alone is of.
struct NamedCache {
  explicit NamedCache(const std::string& path);

  CacheFolder folder;
  const std::string name;
  const CacheKind kind;
};

}  // namespace regen::execute
